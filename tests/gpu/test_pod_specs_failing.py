"""A pod whose spec cannot be generated, and GPUs that are in none: each failure has a reason, and is forgotten."""

import errno
from pathlib import Path

import attrs
import pytest

from actors.gpu.inventory import Inventory
from actors.ports import Exit, Finished
from sim.world import scenery
from sim.world.gpus import Toolkit
from sim.world.nvml import Return, Symbol
from statemachine.reasons import Reason
from tests.gpu.pods import CDI, Pod, made, refused

pytestmark = pytest.mark.anyio

# ---- GPUs that nobody gets


async def test_a_gpu_that_is_lost_leaves_the_spec_of_all_as_it_was():
    pod = Pod()
    source = pod.source()
    first = await made(pod, source)
    pod.gpus.lose(2)
    assert (await made(pod, source, last=first)).kept is first.kept
    assert len(pod.processes.argvs) == 1


async def test_with_a_lost_gpu_the_others_are_generated_by_name_and_it_comes_back():
    pod = Pod()
    pod.gpus.lose(2)
    first = await made(pod)
    lost, healthy = pod.inventory.gpus
    assert [device.name for device in first.kept.spec.devices] == ["0", healthy.uuid, "all"]
    pod.gpus.recover(2)
    again = await made(pod, last=first)
    assert again.kept.spec.device(lost.uuid) is not None
    assert again.kept.identity == first.kept.identity


async def test_before_1_19_a_lost_gpu_is_the_reason():
    pod = Pod(toolkit=Toolkit(version="1.18.2"))
    pod.gpus.lose(2)
    problem = await refused(pod)
    assert problem.reason is Reason.GENERATE_FAILED
    assert "GPU is lost" in problem.message


async def test_when_every_gpu_is_in_mig_mode_it_is_unsupported_and_nothing_is_run():
    pod = Pod()
    split_ones = Inventory(attrs.evolve(gpu, mig_devices=("MIG-1",)) for gpu in pod.inventory.gpus)
    problem = await refused(pod, inventory=split_ones)
    assert (problem.reason, problem.subject) == (Reason.MIG_UNSUPPORTED, "/dev/nvidia2")
    assert not pod.processes.argvs


async def test_beside_a_gpu_in_mig_mode_the_others_have_their_spec():
    pod = Pod()
    first, second = pod.inventory.gpus
    mixed = Inventory([attrs.evolve(first, mig_devices=()), second])
    assert (await made(pod, inventory=mixed)).kept.spec.device(second.uuid) is not None


@pytest.mark.parametrize(
    ("inventory", "reason"),
    [
        (lambda pod: Inventory(), Reason.GPU_NOT_DETECTED),
        (lambda pod: Inventory(attrs.evolve(gpu, lost="XID 79") for gpu in pod.inventory.gpus), Reason.GPU_LOST),
    ],
)
async def test_without_a_usable_gpu_nothing_is_generated(inventory, reason):
    pod = Pod()
    assert (await refused(pod, inventory=inventory(pod))).reason is reason
    assert not pod.processes.argvs


# ---- what fails, and the next one who asks


def strip_versions(pod: Pod) -> None:
    """Only the tool itself can tell that they do not belong to the module."""
    pod.gpus.upgrade_driver("590.48.01")
    folder = pod.disk.find_directory(Path("/usr/lib64"))
    for name in ("libcuda", "libnvidia-ml"):
        pod.disk.rename(folder, f"{name}.so.590.48.01", folder, f"{name}.so.new")
        scenery.put_symlink(pod.disk, Path(f"/usr/lib64/{name}.so.1"), f"{name}.so.new")


def remove_toolkit(pod: Pod) -> None:
    for name in ("nvidia-ctk", "nvidia-ctk.real"):
        pod.disk.remove(pod.disk.find_directory(pod.gpus.toolkit.directory), name)


def remove_nvml(pod: Pod) -> None:
    pod.disk.remove(pod.disk.find_directory(Path("/usr/lib64")), "libnvidia-ml.so.1")


def fill(pod: Pod) -> None:
    pod.files.failures["make_directory", CDI] = OSError(errno.ENOSPC, "No space left on device")


def writes(data: bytes):
    """The tool ends well and has written this."""

    def spoil(pod: Pod) -> None:
        pod.processes.output, pod.processes.ends = data, Finished(exit=Exit(code=0))

    return spoil


WITHOUT_CONTROL = (
    b'{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": ['
    b'{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia3", "major": 195, "minor": 3}]}},'
    b'{"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2", "major": 195, "minor": 2}]}}]}'
)
NVML, FAILED, UNRESOLVED = Reason.NVML_UNAVAILABLE, Reason.GENERATE_FAILED, Reason.CDI_DEVICE_UNRESOLVED
FAILURES = {
    "no toolkit": (remove_toolkit, Reason.TOOLKIT_NOT_FOUND, "was not found"),
    "no library": (remove_nvml, NVML, "ERROR_LIBRARY_NOT_FOUND"),
    "another driver": (lambda pod: pod.gpus.upgrade_driver("590.48.01"), NVML, "version mismatch"),
    "libraries without a version": (strip_versions, NVML, "version mismatch"),
    "no driver": (lambda pod: pod.gpus.unload_driver(), NVML, "Driver Not Loaded"),
    "no access": (lambda pod: pod.gpus.deny_devices(), NVML, "Unknown Error"),
    "a lost gpu": (lambda pod: pod.gpus.spoil(Symbol.UUID, Return.GPU_IS_LOST), FAILED, "GPU is lost"),
    "no uvm": (lambda pod: pod.gpus.remove_node("nvidia-uvm"), UNRESOLVED, "nvidia-uvm"),
    "no control node": (writes(WITHOUT_CONTROL), UNRESOLVED, "lack"),
    "half a spec": (writes(b'{"cdiVersion": "0.5.0", "kind'), FAILED, "no CDI specification"),
    "another document": (writes(b"hello"), FAILED, "no CDI specification"),
    "a full disk": (fill, Reason.STATE_UNWRITABLE, "No space left on device"),
}


@pytest.mark.parametrize(("spoil", "reason", "words"), FAILURES.values(), ids=FAILURES)
async def test_every_failure_is_a_reason_and_nothing_is_left(spoil, reason, words):
    pod = Pod()
    gpus = pod.inventory
    spoil(pod)
    problem = await refused(pod, inventory=gpus)
    assert problem.reason is reason
    assert words in problem.message
    assert problem.hint
    assert not [name for name, data in pod.specs().items() if data is not None]


async def test_a_failure_is_forgotten_by_the_next_one_who_asks():
    pod = Pod()
    source = pod.source()
    pod.gpus.unload_driver()
    await refused(pod, source)
    pod.gpus.reload_driver()
    assert (await made(pod, source)).kept.spec


async def test_a_toolkit_that_comes_late_is_found():
    pod = Pod(toolkit=Toolkit(is_mounted=False, directory=Path("/toolkit")))
    source = pod.source(toolkit_dir=Path("/toolkit"))
    problem = await refused(pod, source)
    assert (problem.reason, problem.subject) == (Reason.TOOLKIT_NOT_FOUND, "/toolkit/nvidia-ctk")
    pod.gpus.mount_toolkit()
    assert (await made(pod, source)).kept.spec


async def test_a_spec_that_cannot_be_written_is_a_reason_and_leaves_no_half_of_it():
    pod = Pod()
    identity = (await made(Pod())).kept.identity
    pod.files.failures["replace", CDI / identity / "nvidia.json"] = OSError(errno.ENOSPC, "No space left on device")
    problem = await refused(pod)
    assert problem.reason is Reason.STATE_UNWRITABLE
    assert not [name for name, data in pod.specs().items() if data is not None]
