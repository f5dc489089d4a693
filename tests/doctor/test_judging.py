"""Each judgement of the doctor's from plain facts: ok, warn or fail, with a reason and what to do."""

from pathlib import Path

import pytest

from actors.gpu.detection import Detected
from actors.gpu.elf import Linkage
from actors.gpu.facts import ErrorFact, InventoryFact
from actors.gpu.inventory import Inventory
from actors.gpu.toolkit import Program, Toolkit, ToolkitVersion
from actors.gpu.view import SILENT, NvmlFails, after
from actors.ports import DriverPlaces, FileKind, FileStat
from actors.runsc.nvproxy import Nvproxy
from actors.runsc.version import RuntimeVersion
from statemachine.reasons import Reason
from supervisor.doctor.check import Check
from supervisor.doctor.devices import judge_inventory, judge_spec, judge_support
from supervisor.doctor.driver import (
    DriverFacts,
    Libc,
    judge_driver_libraries,
    judge_driver_root,
    judge_interpreter,
    libc_of,
)
from supervisor.doctor.nodes import NodeFacts, judge_cdi_mode, judge_nodes, judge_params
from supervisor.doctor.nvml import judge_nvml
from supervisor.doctor.runtime import PlatformFacts, judge_platform, judge_runsc
from supervisor.doctor.toolkit import ToolkitFacts, judge_toolkit
from supervisor.settings import CdiSource
from tests.doctor.saying import FAIL, OK, WARN, problem, said
from tests.gpu.making import gpu, inventory

R = Reason
RUNSC = Path("/usr/bin/runsc")
PYTHON = Path("/usr/bin/python3")
FILE = FileStat(kind=FileKind.REGULAR, size_bytes=1, mode=0o755, inode=1, mtime_ns=0)
DEVICE = FileStat(kind=FileKind.CHARACTER_DEVICE, size_bytes=0, mode=0o600, inode=1, mtime_ns=0, device=(10, 232))


# ---- a check itself


@pytest.mark.parametrize(
    ("status", "reason", "hint"),
    [(OK, R.INTERNAL, ""), (WARN, None, "do"), (FAIL, None, "do"), (FAIL, R.INTERNAL, ""), (WARN, R.INTERNAL, "")],
)
def test_a_fault_without_a_reason_or_a_hint_cannot_be_made(status, reason, hint):
    with pytest.raises(ValueError, match="is"):
        Check(name="x", status=status, message="m", reason=reason, hint=hint)


# ---- gVisor

VERSION = RuntimeVersion(text="release-20240729.0", date=20240729)


@pytest.mark.parametrize(
    ("path", "version", "status", "reason"),
    [
        (RUNSC, VERSION, OK, None),
        (problem(R.RUNTIME_UNAVAILABLE), problem(R.RUNTIME_UNAVAILABLE), FAIL, R.RUNTIME_UNAVAILABLE),
        (RUNSC, problem(R.RUNTIME_TOO_OLD), FAIL, R.RUNTIME_TOO_OLD),
    ],
)
def test_runsc_is_there_answers_and_is_not_too_old(path, version, status, reason):
    assert said(judge_runsc(path, version), status, reason)


def platform(name="systrap", **facts):
    return PlatformFacts(**{"name": name, "is_root": True, "was_tried": True, **facts})


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        (platform(), OK, "was started on systrap"),
        (platform(fault=problem(R.RUNTIME_UNAVAILABLE, "no namespaces")), FAIL, "no namespaces"),
        (platform(is_root=False, was_tried=False), WARN, "needs root"),
        (platform(was_tried=False), WARN, "no runsc"),
        (platform("kvm"), FAIL, "/dev/kvm is not in this pod"),
        (platform("kvm", kvm=DEVICE), FAIL, "/dev/kvm cannot be opened"),
        (platform("kvm", kvm=FILE, may_use_kvm=True), FAIL, "/dev/kvm"),
        (platform("kvm", kvm=DEVICE, may_use_kvm=True), OK, "was started on kvm"),
    ],
)
def test_a_platform_is_good_when_a_sandbox_was_started_on_it(facts, status, words):
    assert said(judge_platform(facts), status, None if status is OK else R.RUNTIME_UNAVAILABLE, words)


# ---- the GPU

DEV = Path("/dev")
BOTH = frozenset({"nvidiactl", "nvidia-uvm"})


@pytest.mark.parametrize(
    ("facts", "status", "reason", "words"),
    [
        (NodeFacts(directory=DEV, gpus=("nvidia2",), control=BOTH), OK, None, ["nvidia2"]),
        (NodeFacts(directory=DEV), FAIL, R.GPU_NOT_DETECTED, ["/dev has no nvidia0"]),
        (NodeFacts(directory=DEV, control=BOTH), FAIL, R.GPU_NOT_DETECTED, ["only nvidia-uvm, nvidiactl"]),
        (NodeFacts(directory=DEV, gpus=("nvidia2",)), FAIL, R.CDI_DEVICE_UNRESOLVED, ["lacks nvidiactl, nvidia-uvm"]),
        (NodeFacts(directory=DEV, odd=("/dev/nvidia0",)), FAIL, R.GPU_NOT_DETECTED, ["/dev/nvidia0"]),
        (NodeFacts(directory=DEV, unread="Permission denied"), FAIL, R.GPU_NOT_DETECTED, ["Permission denied"]),
    ],
)
def test_nodes_are_those_of_gpus_and_the_two_that_control_them(facts, status, reason, words):
    assert said(judge_nodes(facts), status, reason, *words)


@pytest.mark.parametrize(
    ("covers", "status", "reason"),
    [
        ((), OK, None),
        (("/proc/driver/nvidia",), FAIL, R.CDI_MODE_REQUIRED),
        (problem(R.NVML_UNAVAILABLE), FAIL, R.NVML_UNAVAILABLE),
    ],
)
def test_legacy_mode_is_told_with_its_remedy(covers, status, reason):
    check = judge_cdi_mode(covers)
    assert said(check, status, reason)
    assert ("cdi-cri" in check.hint) == (reason is R.CDI_MODE_REQUIRED)


@pytest.mark.parametrize(
    ("params", "status", "reason"),
    [
        ("ModifyDeviceFiles: 0\n", OK, None),
        ("ModifyDeviceFiles: 1\n", WARN, R.CDI_DEVICE_UNRESOLVED),
        (None, WARN, R.NVML_UNAVAILABLE),
    ],
)
def test_a_driver_that_makes_nodes_by_itself_is_warned_of(params, status, reason):
    assert said(judge_params(params, DriverPlaces()), status, reason, "/proc/driver/nvidia/params")


ROOT = Path("/driver")
ML, CUDA = ROOT / "lib64/libnvidia-ml.so.1", ROOT / "lib64/libcuda.so.1"
FOUND = {"libnvidia-ml.so.1": ML, "libcuda.so.1": CUDA}


@pytest.mark.parametrize(
    ("found", "status", "reason", "words"),
    [
        (FOUND, OK, None, [str(ML), str(CUDA)]),
        ({"libcuda.so.1": CUDA}, FAIL, R.NVML_UNAVAILABLE, ["libnvidia-ml.so.1 is missing", "/driver/usr/lib64"]),
        ({"libnvidia-ml.so.1": ML}, FAIL, R.GENERATE_FAILED, ["libcuda.so.1 is missing"]),
        ({}, FAIL, R.NVML_UNAVAILABLE, ["libnvidia-ml.so.1 and libcuda.so.1 are missing"]),
    ],
)
def test_a_driver_root_has_both_libraries(found, status, reason, words):
    assert said(judge_driver_root(DriverFacts(root=ROOT, found=found)), status, reason, *words)


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        (DriverFacts(root=ROOT, found=FOUND, libcs=dict.fromkeys(FOUND, Libc.GLIBC)), OK, "needs glibc"),
        (DriverFacts(root=ROOT, found=FOUND, libcs={"libcuda.so.1": Libc.MUSL}), FAIL, str(CUDA)),
        (DriverFacts(root=ROOT, found=FOUND, unreadable=("/x: it is no ELF file",)), FAIL, "no ELF file"),
        (DriverFacts(root=ROOT), WARN, "none below /driver"),
    ],
)
def test_the_drivers_libraries_are_libraries_and_for_glibc(facts, status, words):
    assert said(judge_driver_libraries(facts), status, None if status is OK else R.NVML_UNAVAILABLE, words)


LINKAGES = [
    (Linkage(interpreter="/lib64/ld-linux-x86-64.so.2", needed=("libc.so.6",)), Libc.GLIBC),
    (Linkage(interpreter="/lib/ld-linux-aarch64.so.1", needed=()), Libc.GLIBC),
    (Linkage(interpreter=None, needed=("libm.so.6", "libc.so.6")), Libc.GLIBC),
    (Linkage(interpreter="/lib/ld-musl-x86_64.so.1", needed=("libc.musl-x86_64.so.1",)), Libc.MUSL),
    (Linkage(interpreter=None, needed=("libc.musl-x86_64.so.1",)), Libc.MUSL),
    (Linkage(interpreter=None, needed=("libc.so",)), Libc.MUSL),
    (Linkage(interpreter=None), Libc.NONE),
    (Linkage(interpreter="/system/bin/linker64", needed=("libdl.so",)), Libc.UNKNOWN),
]


@pytest.mark.parametrize(("linkage", "libc"), LINKAGES)
def test_a_c_library_is_known_by_the_linker_and_by_what_is_needed(linkage, libc):
    assert libc_of(linkage) is libc


@pytest.mark.parametrize(
    ("linkage", "status"),
    [
        (LINKAGES[0][0], OK),
        (LINKAGES[3][0], FAIL),
        (Linkage(interpreter=None), FAIL),
        (LINKAGES[7][0], WARN),
        ("it cannot be read", WARN),
    ],
)
def test_an_interpreter_for_musl_cannot_load_the_driver(linkage, status):
    check = judge_interpreter(PYTHON, linkage)
    assert said(check, status, None if status is OK else R.NVML_UNAVAILABLE)


def answer(*gpus, unread=()):
    return after(SILENT, InventoryFact(driver="580.65.06", inventory=Inventory(gpus), unread=unread))


def nvml_error(name):
    return after(SILENT, ErrorFact(call="nvmlInit", error=name, message="said"))


@pytest.mark.parametrize(
    ("view", "status", "reason", "words"),
    [
        (answer(gpu(2)), OK, None, ["driver 580.65.06", "/dev/nvidia2", "GPU-2"]),
        (answer(), FAIL, R.GPU_NOT_DETECTED, ["sees no GPU"]),
        (answer(unread=("NVML_ERROR_GPU_IS_LOST",)), FAIL, R.GPU_NOT_DETECTED, ["NVML_ERROR_GPU_IS_LOST"]),
        (answer(gpu(2), unread=("NVML_ERROR_GPU_IS_LOST",)), WARN, R.GPU_LOST, ["GPU-2", "1 that it cannot name"]),
        (answer(gpu(2), gpu(3, lost="XID 79")), WARN, R.GPU_LOST, ["lost (XID 79)"]),
        (answer(gpu(3, lost="XID 79")), FAIL, R.GPU_LOST, ["lost (XID 79)"]),
        (answer(gpu(2), gpu(3, mig_devices=())), WARN, R.MIG_UNSUPPORTED, ["MIG"]),
        (answer(gpu(3, mig_devices=("MIG-1",))), FAIL, R.MIG_UNSUPPORTED, ["MIG"]),
        (SILENT, FAIL, R.NVML_UNAVAILABLE, ["has not spoken"]),
    ],
)
def test_nvml_answers_and_names_gpus_that_can_be_granted(view, status, reason, words):
    assert said(judge_nvml(view), status, reason, *words)


@pytest.mark.parametrize(
    ("view", "hint"),
    [
        (nvml_error("NVML_ERROR_LIBRARY_NOT_FOUND"), "--driver-root"),
        (nvml_error("NVML_ERROR_DRIVER_NOT_LOADED"), "not loaded"),
        (nvml_error("NVML_ERROR_LIB_RM_VERSION_MISMATCH"), "upgraded"),
        (nvml_error("NVML_ERROR_NO_PERMISSION"), "device plugin"),
        (nvml_error("NVML_ERROR_UNKNOWN"), "cgroup"),
        (NvmlFails(why="it did not answer within 20 s"), "hangs"),
    ],
)
def test_why_nvml_does_not_answer_says_what_to_do(view, hint):
    check = judge_nvml(view)
    assert said(check, FAIL, R.NVML_UNAVAILABLE, view.why)
    assert hint in check.hint


PROGRAM = Program(path=Path("/toolkit/nvidia-ctk.real"), file=FILE)
TOOLKIT = Toolkit(program=PROGRAM, hook=None, version=ToolkitVersion.of("1.18.2"))


@pytest.mark.parametrize(
    ("facts", "status", "reason", "words"),
    [
        (ToolkitFacts(program=PROGRAM, toolkit=TOOLKIT), OK, None, ["/toolkit/nvidia-ctk.real", "1.18.2"]),
        (ToolkitFacts(program=problem(R.TOOLKIT_NOT_FOUND, "not there")), FAIL, R.TOOLKIT_NOT_FOUND, ["not there"]),
        (
            ToolkitFacts(program=PROGRAM, absent_linker="/lib64/ld-linux-x86-64.so.2"),
            FAIL,
            R.TOOLKIT_NOT_FOUND,
            ["/lib64/ld-linux-x86-64.so.2", "another C library"],
        ),
        (
            ToolkitFacts(program=PROGRAM, toolkit=problem(R.STEP_DEADLINE_EXCEEDED, "did not end")),
            FAIL,
            R.STEP_DEADLINE_EXCEEDED,
            ["did not end"],
        ),
    ],
)
def test_a_toolkit_is_there_and_its_program_can_be_loaded_and_answers(facts, status, reason, words):
    assert said(judge_toolkit(facts, source=CdiSource.POD), status, reason, *words)
    # Where somebody else writes the spec, nobody needs it.
    assert said(judge_toolkit(facts, source=CdiSource.HOST), OK, None, *words)


def test_an_inventory_is_what_nodes_and_nvml_agree_on():
    found = Detected(inventory=inventory(2, 5, lost={5: "XID 79"}), driver="580.65.06")
    assert said(judge_inventory(found), OK, None, "1 of 2")
    differing = Detected(inventory=inventory(2), driver="580.65.06", warnings=("NVML does not know /dev/nvidia3",))
    assert said(judge_inventory(differing), WARN, R.GPU_NOT_DETECTED, "/dev/nvidia3")
    assert said(judge_inventory(problem(R.NVML_UNAVAILABLE)), FAIL, R.NVML_UNAVAILABLE)


def test_a_spec_that_cannot_be_made_is_told_once_where_its_cause_was_told_already():
    assert said(judge_spec(None, source=CdiSource.POD), WARN, R.GENERATE_FAILED, "no GPU")
    assert said(judge_spec(problem(R.TOOLKIT_NOT_FOUND), source=CdiSource.POD), WARN, R.GENERATE_FAILED, "no toolkit")
    assert said(judge_spec(problem(R.CDI_DEVICE_UNRESOLVED), source=CdiSource.POD), FAIL, R.CDI_DEVICE_UNRESOLVED)


KNOWN = ("535.183.01", "580.65.06", "550.90.07")


@pytest.mark.parametrize(
    ("found", "view", "nvproxy", "status", "words"),
    [
        (KNOWN, answer(gpu(0)), Nvproxy.AUTO, OK, "knows driver 580.65.06"),
        (problem(R.DRIVER_UNSUPPORTED_BY_RUNTIME), answer(gpu(0)), Nvproxy.AUTO, FAIL, "why"),
        (problem(R.DRIVER_UNSUPPORTED_BY_RUNTIME), answer(gpu(0)), Nvproxy.OFF, OK, "--nvproxy off"),
        (None, answer(gpu(0)), Nvproxy.AUTO, WARN, "does not say"),
        (KNOWN, SILENT, Nvproxy.AUTO, WARN, "up to 580.65.06"),
    ],
)
def test_gvisor_must_know_the_driver_that_is_loaded(found, view, nvproxy, status, words):
    reason = None if status is OK else R.DRIVER_UNSUPPORTED_BY_RUNTIME
    assert said(judge_support(found, view, nvproxy=nvproxy), status, reason, words)
