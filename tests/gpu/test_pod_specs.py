"""The spec of a pod that has it generated: verified, kept under its identity, made anew when something changed."""

import errno
import re
from pathlib import Path

import attrs
import pytest

from actors.gpu.inventory import Inventory
from actors.gpu.spec_identity import identity_of, stamps_of, still_hold
from actors.ports import Exit, Finished
from sim.world import scenery
from sim.world.gpus import Driver, Gpu, Toolkit
from sim.world.nvml import Return, Symbol
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.gpu.libraries import library
from tests.gpu.pods import CDI, DRIVER, Pod

pytestmark = pytest.mark.anyio


async def made(pod, source=None, last=None, inventory=None, driver=DRIVER):
    return await (source or pod.source()).make(inventory or pod.inventory, driver, last)


async def refused(pod, source=None, inventory=None):
    with pytest.raises(ProblemError) as raised:
        await made(pod, source, inventory=inventory)
    assert {problem.step for problem in raised.value.problems} == {Step.GENERATE}
    return raised.value.problem


# ---- what is kept


async def test_a_spec_is_kept_under_its_identity_as_the_tool_wrote_it():
    pod = Pod()
    kept = (await made(pod)).kept
    assert list(pod.specs()) == [kept.identity, f"{kept.identity}/nvidia.json"]
    assert kept.path == CDI / kept.identity / "nvidia.json"
    assert pod.specs()[f"{kept.identity}/nvidia.json"].startswith(b'{"cdiVersion":')
    assert (kept.driver, kept.toolkit) == (DRIVER, "1.20.0")
    assert {gpu.uuid for gpu in pod.inventory.gpus} <= {device.name for device in kept.spec.devices}


async def test_sonames_are_read_once_and_what_is_no_library_is_a_warning():
    pod = Pod()
    folder = pod.gpus.driver.libraries
    scenery.put_file(pod.disk, folder / f"libcuda.so.{DRIVER}", library(b"libcuda.so.1"), mode=0o755)
    kept = (await made(pod)).kept
    assert [(each.path, each.soname) for each in kept.libraries] == [(f"{folder}/libcuda.so.{DRIVER}", "libcuda.so.1")]
    assert len(kept.warnings) == 2
    assert all(f".so.{DRIVER}: " in warning for warning in kept.warnings)


async def test_the_driver_and_the_nodes_may_be_below_other_roots():
    pod = Pod(driver=Driver(root=Path("/run/nvidia/driver"), dev_root=Path("/host")))
    spec = (await made(pod)).kept.spec
    device = spec.device(pod.inventory.gpus[0].uuid)
    assert device is not None
    assert [node.source for node in device.container_edits.device_nodes] == ["/host/dev/nvidia2"]
    assert {mount.host_path.startswith("/run/nvidia/driver/") for mount in spec.container_edits.mounts} == {True}


async def test_a_pod_as_on_gke_finds_the_driver_where_the_device_plugin_mounts_it():
    folder = Path("/usr/local/nvidia")
    pod = Pod(driver=Driver(libraries=folder / "lib64", binaries=folder / "bin"))
    spec = (await made(pod)).kept.spec
    assert {Path(mount.host_path).parent.parent for mount in spec.container_edits.mounts} == {folder}
    assert any(mount.host_path.endswith("nvidia-smi") for mount in spec.container_edits.mounts)


# ---- what is right stays


async def test_the_same_pod_has_the_same_identity_and_runs_the_tool_once():
    pod = Pod()
    source = pod.source()
    first = await made(pod, source)
    again = await made(pod, source, last=first)
    assert again.kept is first.kept
    assert (len(pod.processes.argvs), pod.processes.versions) == (1, 1)


async def test_a_supervisor_that_begins_anew_finds_the_spec_on_disk():
    pod = Pod()
    first = await made(pod)
    again = await made(pod)
    assert attrs.evolve(again.kept, warnings=()) == attrs.evolve(first.kept, warnings=())
    assert len(pod.processes.argvs) == 1


async def test_a_spec_on_disk_that_is_damaged_is_made_anew():
    pod = Pod()
    kept = (await made(pod)).kept
    scenery.put_file(pod.disk, kept.path, b'{"cdiVersion": "0.5.0"')
    assert (await made(pod)).kept.spec == kept.spec
    assert len(pod.processes.argvs) == 2
    assert pod.disk.read(pod.disk.find_regular(kept.path)).endswith(b"}")


async def test_stamps_hold_until_something_happens_to_the_pod():
    pod = Pod()
    stamps = (await made(pod)).stamps
    assert stamps is not None
    assert await still_hold(pod.files, stamps)


async def test_while_a_directory_changes_nothing_is_taken_for_settled():
    pod = Pod()
    scenery.put_file(pod.disk, Path("/dev/new"))
    assert (await made(pod)).stamps is None
    pod.pass_s(1)
    assert (await made(pod)).stamps is not None


def replace_toolkit(pod: Pod) -> None:
    scenery.put_file(pod.disk, pod.gpus.toolkit.program, b"\x7fELF newer", mode=0o755)


def renumber_uvm(pod: Pod) -> None:
    pod.gpus.remove_node("nvidia-uvm")
    pod.gpus.boot()


def add_another_toolkit(pod: Pod) -> None:
    path = Path("/usr/local/nvidia/toolkit/nvidia-ctk.real")
    scenery.put_file(pod.disk, path, b"\x7fELF", mode=0o755)


CHANGES = {
    "another toolkit": replace_toolkit,
    "a node with another number": renumber_uvm,
    "a node that is gone": lambda pod: pod.gpus.remove_node("nvidia3"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_changed_is_seen_by_the_stamps_and_makes_another_identity(change):
    pod = Pod()
    source = pod.source()
    first = await made(pod, source)
    change(pod)
    pod.pass_s(1)
    assert first.stamps is not None
    assert not await still_hold(pod.files, first.stamps)
    second = await made(pod, source, last=first)
    assert second.kept.identity != first.kept.identity
    assert len(pod.processes.argvs) == 2
    assert second.stamps is not None
    assert await still_hold(pod.files, second.stamps)


async def test_a_toolkit_that_is_mounted_before_the_one_in_PATH_is_noticed():  # noqa: N802 - a variable's name
    pod = Pod(toolkit=Toolkit(directory=Path("/usr/bin")))
    first = await made(pod)
    assert first.stamps is not None
    assert await still_hold(pod.files, first.stamps)
    add_another_toolkit(pod)
    assert not await still_hold(pod.files, first.stamps)


async def test_a_boot_makes_another_identity(monkeypatch):
    pod = Pod()
    first = await made(pod)
    monkeypatch.setattr(pod.wall, "boot_id", lambda: "boot-2")
    assert (await made(pod, last=first)).kept.identity != first.kept.identity


async def test_after_an_upgrade_there_is_none_until_the_module_is_loaded_and_then_another_one():
    pod = Pod()
    source = pod.source()
    first = await made(pod, source)
    pod.gpus.upgrade_driver("590.48.01")
    pod.pass_s(1)
    assert first.stamps is not None
    assert not await still_hold(pod.files, first.stamps)
    problem = await refused(pod, source)
    assert problem.reason is Reason.NVML_UNAVAILABLE
    assert "driver 590.48.01 in /usr/lib64 vs loaded 580.65.06" in problem.message
    assert "reload its module or reboot" in problem.hint
    pod.gpus.reload_driver()
    second = await made(pod, source, last=first, driver="590.48.01")
    assert second.kept.identity != first.kept.identity
    assert second.kept.driver == "590.48.01"
    assert set(pod.specs()) >= {first.kept.identity, second.kept.identity}


async def test_the_driver_that_nvml_tells_is_part_of_the_identity():
    pod = Pod()
    given = (pod.files, pod.wall, pod.places, pod.inventory)
    one, other = [await identity_of(*given, driver=driver, maker=()) for driver in (DRIVER, "590.48.01")]
    assert one != other
    assert re.fullmatch(r"[0-9a-f]{16}", one)


async def test_a_path_that_went_has_the_spec_made_anew_once_under_the_same_identity():
    pod = Pod()
    source = pod.source()
    first = await made(pod, source)
    pod.disk.remove(pod.disk.find_directory(Path("/usr/bin")), "nvidia-smi")
    assert first.stamps is not None
    assert not await still_hold(pod.files, first.stamps)
    second = await made(pod, source, last=first)
    assert second.kept.identity == first.kept.identity
    assert not [mount for mount in second.kept.spec.container_edits.mounts if "nvidia-smi" in mount.host_path]
    assert pod.specs()[f"{first.kept.identity}/nvidia.json"].count(b"nvidia-smi") == 0
    await made(pod, source, last=second)
    assert len(pod.processes.argvs) == 2


async def test_libraries_of_another_driver_are_another_identity_also_when_nvml_names_none():
    pod = Pod()
    first = await made(pod, driver="")
    pod.gpus.upgrade_driver("590.48.01")
    pod.gpus.reload_driver()
    assert (await made(pod, last=first, driver="")).kept.identity != first.kept.identity


async def test_gpus_and_roots_are_part_of_the_identity():
    pod = Pod()
    gpus = pod.inventory
    others = Inventory(attrs.evolve(gpu, uuid=f"{gpu.uuid[:-1]}9") for gpu in gpus.gpus[:1])
    given = (
        (pod.places, gpus),
        (pod.places, others),
        (pod.places, Inventory(gpus.gpus[:1])),
        (attrs.evolve(pod.places, driver_root=Path("/driver")), gpus),
    )
    made_ = [await identity_of(pod.files, pod.wall, *each, driver=DRIVER, maker=()) for each in given]
    assert len(set(made_)) == len(given)


async def test_a_mounted_directory_or_socket_may_change_inside_and_a_file_may_not():
    pod = Pod()
    directory, file = Path("/run/nvidia-mps"), Path("/usr/bin/nvidia-smi")
    scenery.put_directory(pod.disk, directory)
    stamps = await stamps_of(pod.files, directories=(), others=(directory, file), now_s=pod.wall.time_s)
    assert stamps is not None
    pod.pass_s(1)
    scenery.put_file(pod.disk, directory / "control")
    assert await still_hold(pod.files, stamps)
    pod.disk.append(pod.disk.find_regular(file), b"more")
    assert not await still_hold(pod.files, stamps)


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


def split(minor: int) -> Gpu:
    return Gpu(uuid=f"GPU-{minor}", minor=minor, pci_bus_id=f"00000000:3{minor}:00.0", is_in_mig_mode=True)


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


# ---- where to look for changes


async def test_toolkit_libraries_and_nodes_are_watched():
    assert set(await Pod().source().watched()) == {
        Path("/usr/local/nvidia/toolkit"),
        Path("/opt/nvidia-toolkit"),
        Path("/usr/lib64"),
        Path("/dev"),
    }


async def test_below_other_roots_the_roots_are_watched_as_well():
    pod = Pod(driver=Driver(root=Path("/driver"), dev_root=Path("/host")))
    watched = await pod.source(toolkit_dir=Path("/toolkit")).watched()
    assert watched == (
        Path("/toolkit"), Path("/toolkit/toolkit"), Path("/driver/usr/lib64"), Path("/driver"), Path("/host/dev"),
    )  # fmt: skip
