"""The spec of a pod that has it generated: verified, kept under its identity, made anew when something changed."""

import re
from pathlib import Path

import attrs
import pytest

from actors.gpu.inventory import Inventory
from actors.gpu.spec_identity import identity_of, stamps_of, still_hold
from sim.world import scenery
from sim.world.gpus import Driver, Toolkit
from statemachine.reasons import Reason
from tests.gpu.libraries import library
from tests.gpu.pods import CDI, DRIVER, Pod, made, refused

pytestmark = pytest.mark.anyio


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
