"""What the doctor looks at, in the simulated pod's files: facts only, nothing is judged and nothing is changed."""

from pathlib import Path

import pytest

from actors.gpu.detection import Detected
from actors.gpu.facts import InventoryFact
from actors.gpu.view import SILENT, after
from actors.ports import DriverPlaces, FileKind
from sim.world import scenery
from sim.world.files import SimFiles
from sim.world.gpus import some_gpus
from sim.world.nodes import Special
from sim.world.world import Machine, World
from statemachine.problem import Problem
from statemachine.reasons import Reason
from supervisor.doctor.devices import found_gpus, look_for_gpus
from supervisor.doctor.directories import look_at_directory
from supervisor.doctor.driver import Libc, linkage_or_why, look_at_driver
from supervisor.doctor.mounts import MountPoint
from supervisor.doctor.nodes import look_at_nodes, read_params
from supervisor.doctor.toolkit import look_at_toolkit
from tests.actors.doubles import Double
from tests.gpu.libraries import NEEDED, NULL, STRINGS_AT, STRTAB, library, program
from tests.gpu.making import inventory

pytestmark = pytest.mark.anyio
DEV = Path("/dev")
PLACES = DriverPlaces()


@pytest.fixture
def world():
    return World(machine=Machine(gpus=some_gpus(2, minors=(7, 2))))


@pytest.fixture
def files(world):
    return SimFiles(world.disk, roots=[Path("/var/lib/greenroom")], owner=object())


async def test_nodes_are_seen_by_minor_and_only_character_devices_count(world, files):
    scenery.put_file(world.disk, DEV / "nvidia3")
    scenery.put_special(world.disk, DEV / "nvidia10", Special.CHARACTER_DEVICE, device=(195, 10))
    scenery.put_special(world.disk, DEV / "nvidia254", Special.CHARACTER_DEVICE, device=(195, 254))
    found = await look_at_nodes(files, PLACES)
    assert found.gpus == ("nvidia2", "nvidia7", "nvidia10")
    assert found.control == {"nvidiactl", "nvidia-uvm"}
    assert (found.odd, found.unread) == (("/dev/nvidia3",), "")


async def test_a_dev_that_is_not_there_is_a_fact(files):
    found = await look_at_nodes(files, DriverPlaces(dev_root=Path("/nowhere")))
    assert (found.directory, found.gpus, found.unread) == (Path("/nowhere/dev"), (), "No such file or directory")


async def test_parameters_are_read_where_the_drivers_part_of_proc_is(world, files):
    assert "ModifyDeviceFiles" in (await read_params(files, PLACES) or "")
    assert await read_params(files, DriverPlaces(proc_root=Path("/nowhere"))) is None


def musl():
    strings = b"\0libc.musl-x86_64.so.1\0"
    return library(dynamic=[(NEEDED, 1), (STRTAB, 0x10000 + STRINGS_AT), (NULL, 0)], strings=strings)


async def test_libraries_are_found_in_the_usual_folders_with_what_they_are_built_for(world, files):
    root = Path("/other")
    assert (await look_at_driver(files, root)).found == {}
    scenery.put_file(world.disk, root / "lib64/libcuda.so.1", musl())
    scenery.put_file(world.disk, root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", b"no library")
    found = await look_at_driver(files, root)
    assert found.found == {
        "libcuda.so.1": root / "lib64/libcuda.so.1",
        "libnvidia-ml.so.1": root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    }
    assert found.libcs == {"libcuda.so.1": Libc.MUSL}
    assert [text.partition(": ")[2] for text in found.unreadable] == ["it is no ELF file"]


async def test_a_program_that_cannot_be_read_says_why(files):
    assert await linkage_or_why(files, Path("/nowhere")) == "/nowhere cannot be read: No such file or directory"


class NoProcesses(Double):  # type: ignore[misc]
    """Nothing may be run."""


async def test_a_toolkit_whose_linker_is_missing_is_not_even_run(world, files):
    tool = Path("/tools/nvidia-ctk")
    scenery.put_file(world.disk, tool, program(b"/lib64/ld-linux-x86-64.so.2\0"), mode=0o755)
    found = await look_at_toolkit(files, NoProcesses(), tool.parent)
    assert (found.absent_linker, found.toolkit) == ("/lib64/ld-linux-x86-64.so.2", None)


async def test_a_toolkit_that_is_not_there_is_a_problem(files):
    found = await look_at_toolkit(files, NoProcesses(), Path("/nowhere"))
    assert isinstance(found.program, Problem)
    assert found.program.reason is Reason.TOOLKIT_NOT_FOUND


async def test_gpus_are_found_as_a_worker_finds_them(files):
    seen = await look_for_gpus(files, PLACES)
    answer = after(SILENT, InventoryFact(driver="580.65.06", inventory=inventory(2, 7)))
    found = found_gpus(seen, answer)
    assert isinstance(found, Detected)
    assert [gpu.minor for gpu in found.inventory.gpus] == [2, 7]
    silent = found_gpus(seen, SILENT)
    assert isinstance(silent, Problem)
    assert silent.reason is Reason.NVML_UNAVAILABLE
    assert found_gpus(silent, answer) is silent


@pytest.mark.parametrize(
    ("path", "standing", "kind"),
    [
        ("/var/lib/greenroom", "/var/lib/greenroom", FileKind.DIRECTORY),
        ("/var/lib/greenroom/a/b", "/var/lib/greenroom", FileKind.DIRECTORY),
        ("/nowhere/at/all", "/", FileKind.DIRECTORY),
        ("/file/below", "/file", FileKind.REGULAR),
    ],
)
async def test_a_directory_is_judged_by_where_it_would_be_made(path, standing, kind, world, files):
    scenery.put_file(world.disk, Path("/file"))
    scenery.put_directory(world.disk, Path("/var/lib/greenroom"))
    before = scenery.snapshot(world.disk, Path("/var"))
    asked = []

    def may_change(path):
        asked.append(path)
        return True

    mounts = [MountPoint(path="/", file_system="ext4"), MountPoint(path="/var", file_system="xfs")]
    found = await look_at_directory(files, Path(path), mounts=mounts, may_change=may_change, is_root=True)
    assert (found.standing, found.kind, asked) == (Path(standing), kind, [Path(standing)])
    assert found.mount is not None
    assert found.mount.file_system == ("xfs" if standing.startswith("/var") else "ext4")
    assert scenery.snapshot(world.disk, Path("/var")) == before
