"""One run of nvidia-ctk: its command line for each release, where it may write, and what becomes of each way to end."""

import errno
from pathlib import Path

import anyio
import pytest

from actors.cdi import load
from actors.gpu.driver_files import library_folder
from actors.gpu.generating import command, environment
from actors.gpu.toolkit import Program, Toolkit, ToolkitHungError, ToolkitVersion, find_program, toolkit_of
from actors.ports import DeadlineExceededError, DriverPlaces, Exit, FileKind, FileStat, Finished
from sim.world import scenery
from sim.world.gpus import Driver
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.gpu.making import inventory
from tests.gpu.pods import CDI, Pod

pytestmark = pytest.mark.anyio

PROGRAM = Path("/usr/local/nvidia/toolkit/nvidia-ctk.real")
OUT = Path("/state/cdi/.new-1/nvidia.json")
ELSEWHERE = DriverPlaces(dev_root=Path("/host"), driver_root=Path("/run/nvidia/driver"))
GKE = Path("/usr/local/nvidia/lib64")


def toolkit(version: str, *, hook: Path | None = None) -> Toolkit:
    file = FileStat(kind=FileKind.REGULAR, size_bytes=1, mode=0o755, inode=1, mtime_ns=1)
    return Toolkit(program=Program(path=PROGRAM, file=file), hook=hook, version=ToolkitVersion.of(version))


def flags(version: str, gpus=inventory(2, 5), *, places=ELSEWHERE, folder=None, hook=None) -> list[str]:
    words = command(toolkit(version, hook=hook), places, output=OUT, inventory=gpus, library_folder=folder)
    assert words[:3] == (str(PROGRAM), "cdi", "generate")
    return list(words[3:])


OLDEST = [f"--output={OUT}", "--format=json", "--driver-root=/run/nvidia/driver"]
NAMES = ["--device-name-strategy=uuid", "--device-name-strategy=index"]


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("1.13.5", []),
        ("1.14.6", []),
        ("1.15.0", ["--dev-root=/host", *NAMES]),
        ("1.16.2", ["--dev-root=/host", *NAMES, "--nvidia-cdi-hook-path=/toolkit/nvidia-cdi-hook"]),
        ("1.20.0", ["--dev-root=/host", *NAMES, "--nvidia-cdi-hook-path=/toolkit/nvidia-cdi-hook"]),
        ("unknown", ["--dev-root=/host", *NAMES, "--nvidia-cdi-hook-path=/toolkit/nvidia-cdi-hook"]),
    ],
)
def test_each_release_is_given_the_flags_that_it_has(version, more):
    assert flags(version, hook=Path("/toolkit/nvidia-cdi-hook")) == [*OLDEST, *more]


@pytest.mark.parametrize(("version", "ids"), [("1.18.2", []), ("1.19.0", [2]), ("1.20.0", [2]), ("unknown", [2])])
def test_a_lost_gpu_is_left_out_where_the_release_can_leave_one_out(version, ids):
    gpus = inventory(2, 5, lost={5: "XID 79"})
    assert [word for word in flags(version, gpus) if "device-id" in word] == [
        f"--device-id=GPU-{minor}" for minor in ids
    ]


def test_no_gpu_is_named_while_all_are_healthy():
    assert not [word for word in flags("1.20.0") if "device-id" in word]


@pytest.mark.parametrize(
    ("version", "folder", "flag", "variable"),
    [
        ("1.20.0", None, [], None),
        ("1.20.0", Path("/usr/lib64"), [], None),
        ("1.20.0", GKE, [f"--library-search-path={GKE}"], None),
        ("1.16.0", GKE, [f"--library-search-path={GKE}"], None),
        ("1.15.0", GKE, [], str(GKE)),
        ("1.13.5", Path("/usr/lib64"), [], "/usr/lib64"),
    ],
)
def test_where_the_libraries_are_is_told_in_the_way_that_the_release_heeds(version, folder, flag, variable):
    words = flags(version, places=DriverPlaces(), folder=folder)
    assert [word for word in words if "search" in word] == flag
    assert environment(toolkit(version), Path("/private"), folder).get("LD_LIBRARY_PATH") == variable


def test_the_environment_is_clean_and_everything_temporary_is_in_the_private_directory():
    env = environment(toolkit("1.20.0"), Path("/private"), None)
    assert (env["TMPDIR"], env["HOME"], env["LC_ALL"]) == ("/private", "/private", "C")
    assert env["PATH"].split(":")[0] == str(PROGRAM.parent)
    assert set(env) == {"PATH", "LC_ALL", "TMPDIR", "HOME"}


@pytest.mark.parametrize(
    "folder", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/local/nvidia/lib64"]
)
async def test_the_library_folder_is_the_one_with_nvml(folder):
    pod = Pod(driver=Driver(root=Path("/driver"), libraries=Path("/") / folder))
    assert await library_folder(pod.files, Path("/driver")) == Path("/driver") / folder
    assert await library_folder(pod.files, Path("/nothing")) is None


# ---- a run


async def generate(pod: Pod, **more) -> bytes:
    found = await toolkit_of(pod.files, pod.processes, await find_program(pod.files, [PROGRAM.parent]))
    return await pod.generator(**more).generate(found, pod.inventory)


async def refused(pod: Pod):
    with pytest.raises(ProblemError) as raised:
        await generate(pod)
    assert pod.specs() == {}
    assert raised.value.problem.step is Step.GENERATE
    return raised.value.problem


async def test_a_run_writes_into_a_directory_of_its_own_that_nobody_else_may_enter():
    pod = Pod()
    modes = []

    class Looking:
        async def wait(self):
            private = pod.processes.written(-1).parent
            modes.append((private.parent, pod.disk.find(private).mode))

    pod.processes.gate = Looking()
    spec = load(await generate(pod), "spec")
    assert {device.name for device in spec.devices} == {"0", "1", "all", *(gpu.uuid for gpu in pod.inventory.gpus)}
    assert modes == [(CDI, 0o700)]
    assert pod.processes.environments[0]["TMPDIR"] == str(pod.processes.written(-1).parent)
    assert pod.specs() == {}


async def test_two_runs_never_share_a_directory():
    pod = Pod()
    await generate(pod)
    await generate(pod)
    assert pod.processes.written(0) != pod.processes.written(1)


async def test_the_deadline_is_the_ports():
    pod = Pod()
    await generate(pod, deadline_s=7)
    assert pod.processes.deadlines == [7]


@pytest.mark.parametrize(
    ("ends", "written", "reason", "words"),
    [
        (Finished(exit=Exit(code=0)), None, Reason.GENERATE_FAILED, "what it wrote cannot be read"),
        (Finished(exit=Exit(code=1)), b"{}", Reason.GENERATE_FAILED, "exit code 1"),
        (Finished(exit=Exit(code=-9)), b"{}", Reason.GENERATE_FAILED, "signal 9 ended it"),
        (Finished(exit=Exit(code=None)), b"{}", Reason.GENERATE_FAILED, "somebody else waited for it"),
        (Finished(exit=Exit(code=127)), None, Reason.TOOLKIT_NOT_FOUND, "127"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), None, Reason.TOOLKIT_NOT_FOUND, "cannot be run"),
        (OSError(errno.EMFILE, "Too many open files"), None, Reason.GENERATE_FAILED, "Too many open files"),
        (DeadlineExceededError(stderr=b"it waits\n"), b"{}", Reason.STEP_DEADLINE_EXCEEDED, "did not end within 60 s"),
    ],
)
async def test_every_other_end_is_a_reason_and_leaves_nothing(ends, written, reason, words):
    pod = Pod()
    pod.processes.ends, pod.processes.output = ends, written
    problem = await refused(pod)
    assert problem.reason is reason
    assert problem.subject == str(PROGRAM)
    assert words in problem.message


async def test_a_run_that_hangs_names_the_program_and_has_its_last_words():
    pod = Pod()
    pod.processes.ends = DeadlineExceededError(stderr=b"it waits\n")
    with pytest.raises(ToolkitHungError) as raised:
        await generate(pod)
    assert raised.value.program == PROGRAM
    assert raised.value.problem.detail == "it waits\n"


async def test_a_cancelled_run_leaves_nothing():
    pod = Pod()
    pod.processes.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generate, pod)
        while not pod.processes.argvs:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert pod.processes.cancelled == 1
    assert pod.specs() == {}


async def test_a_directory_that_cannot_be_made_is_a_reason():
    pod = Pod()
    pod.files.failures["make_directory", CDI] = OSError(errno.ENOSPC, "No space left on device")
    problem = await refused(pod)
    assert problem.reason is Reason.STATE_UNWRITABLE
    assert "No space left on device" in problem.message


async def test_a_private_directory_that_stays_hides_no_reason():
    pod = Pod()
    pod.processes.ends = Finished(exit=Exit(code=1))
    pod.files.failures["remove_tree", CDI / ".new-0000000000000001"] = OSError(errno.EBUSY, "busy")
    with pytest.raises(ProblemError) as raised:
        await generate(pod)
    assert raised.value.problem.reason is Reason.GENERATE_FAILED


async def test_a_stray_spec_in_the_directory_of_specs_is_not_parsed():
    pod = Pod()
    scenery.put_file(pod.disk, CDI / "stray.yaml", b"cdiVersion: 0.5.0\nkind: vendor.com/x\n")
    assert load(await generate(pod), "spec").devices
