"""The GPUs of the pod: device nodes and NVML's word, and what is said where one of them is missing."""

from pathlib import Path

import attrs
import pytest

from actors.gpu.detection import Seen, judge, look_for_nodes, require_nodes
from actors.gpu.facts import ErrorFact, InventoryFact
from actors.gpu.inventory import Inventory
from actors.gpu.view import SILENT, after, after_monitor_ended
from actors.ports import DriverPlaces
from sim.world import scenery
from sim.world.files import SimFiles
from sim.world.gpus import some_gpus
from sim.world.nodes import Special
from sim.world.world import Machine, World
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.files import HostFiles
from tests.gpu.making import gpu, inventory, problems
from tests.sim.mock.nodes import make_node

DEV = Path("/dev")


def answer(*minors, unread=(), **lost):
    return after(SILENT, InventoryFact(driver="570.1", inventory=inventory(*minors, **lost), unread=unread))


def seen(*minors, covers=()):
    return Seen(minors=frozenset(minors), covers=covers)


@pytest.fixture
def world():
    return World(machine=Machine(gpus=some_gpus(4, minors=(7, 2, 5, 3))))


def files_of(world):
    return SimFiles(world.disk, roots=[Path("/var/lib/greenroom")], owner=object())


async def looked(world, places=DriverPlaces()):
    return await look_for_nodes(files_of(world), places)


# ---- what is there


@pytest.mark.anyio
async def test_any_minor_counts_and_no_control_node(world):
    assert await looked(world) == seen(2, 3, 5, 7)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "special", "device"),
    [
        ("nvidia9", Special.FIFO, None),
        ("nvidia9", Special.SOCKET, None),
        ("nvidia9", Special.CHARACTER_DEVICE, (195, 8)),
        ("nvidia09", Special.CHARACTER_DEVICE, (195, 9)),
        ("nvidia9x", Special.CHARACTER_DEVICE, (195, 9)),
        ("nvidia254", Special.CHARACTER_DEVICE, (195, 254)),
        ("nvidia255", Special.CHARACTER_DEVICE, (195, 255)),
        ("nvidia-modeset", Special.CHARACTER_DEVICE, (195, 254)),
        ("nvidia٣", Special.CHARACTER_DEVICE, (195, 3)),
    ],
)
async def test_what_only_looks_like_a_gpu_does_not_count(world, name, special, device):
    scenery.put_special(world.disk, DEV / name, special, mode=0o666, device=device)
    assert await looked(world) == seen(2, 3, 5, 7)


@pytest.mark.anyio
async def test_a_file_or_a_link_in_the_place_of_a_node_does_not_count(world):
    for name in ("nvidia7", "nvidia2"):
        world.gpus.remove_node(name)
    scenery.put_file(world.disk, DEV / "nvidia7")
    scenery.put_symlink(world.disk, DEV / "nvidia2", "nvidia3")
    assert await looked(world) == seen(3, 5)


@pytest.mark.anyio
async def test_without_a_dev_there_is_none():
    assert await looked(World()) == seen()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("line", "covers"),
    [
        ("50 22 0:48 / /proc/driver/nvidia rw - tmpfs tmpfs rw", ("/proc/driver/nvidia",)),
        (
            "50 22 0:48 /x /proc/driver/nvidia/gpus/0000:3b:00.0 ro - proc p rw",
            ("/proc/driver/nvidia/gpus/0000:3b:00.0",),
        ),
        # What the toolkit's hook disable-device-node-modification does, in CDI mode.
        ("50 22 0:48 /edited /proc/driver/nvidia/params ro - tmpfs tmpfs rw", ()),
        ("50 22 0:48 / /proc/driver rw - tmpfs tmpfs rw", ()),
        ("50 22 0:48 / /proc/driver/nvidia-uvm rw - tmpfs tmpfs rw", ()),
        ("50 22 0:48 /proc/driver/nvidia /mnt rw - tmpfs tmpfs rw", ()),
        ("50 22 0:48 / /mnt/a\\040b rw - tmpfs tmpfs rw", ()),
        ("damaged", ()),
        ("", ()),
    ],
)
async def test_a_mount_over_what_the_driver_tells_is_a_cover(world, line, covers):
    scenery.put_file(world.disk, Path("/proc/self/mountinfo"), f"{line}\n".encode())
    assert (await looked(world)).covers == covers


@pytest.mark.anyio
async def test_without_mountinfo_nothing_is_covered(world):
    world.disk.remove(world.disk.find_directory(Path("/proc/self")), "mountinfo")
    assert (await looked(world)).covers == ()


@pytest.mark.anyio
async def test_what_cannot_be_looked_at_is_no_pod_without_gpus(world):
    world.disk.remove(world.disk.find_directory(Path("/proc/self")), "mountinfo")
    scenery.put_directory(world.disk, Path("/proc/self/mountinfo"))
    with pytest.raises(ProblemError) as caught:
        await looked(world)
    assert (caught.value.problem.reason, caught.value.problem.step) == (Reason.NVML_UNAVAILABLE, Step.DETECT)
    assert "/proc/self/mountinfo" in caught.value.problem.message


@pytest.mark.anyio
async def test_a_mock_node_has_what_it_was_made_with(one_mock_node):
    directory = one_mock_node.directory
    places = DriverPlaces(dev_root=directory, proc_root=directory / "proc", driver_root=directory / "driver")
    assert await look_for_nodes(HostFiles(roots=[directory]), places) == seen(2, 3, 5, 7)


@pytest.fixture
def one_mock_node(tmp_path):
    return make_node(tmp_path / "node", "--gpus=4", "--minors=7,2,5,3")


# ---- what comes of it


def refused(*arguments):
    (problem,) = problems(judge, *arguments)
    assert problem.step is Step.DETECT
    return problem


@pytest.mark.parametrize("view", [SILENT, answer(0, 1)])
def test_without_a_node_there_is_no_gpu_whatever_nvml_says(view):
    assert refused(seen(), view).reason is Reason.GPU_NOT_DETECTED
    assert problems(require_nodes, seen())[0].reason is Reason.GPU_NOT_DETECTED


def test_legacy_mode_is_refused_with_the_remedy():
    problem = refused(seen(0, covers=("/proc/driver/nvidia",)), answer(0))
    assert (problem.reason, problem.subject) == (Reason.CDI_MODE_REQUIRED, "/proc/driver/nvidia")
    assert "legacy mode" in problem.message
    assert "cdi-cri" in problem.hint


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (SILENT, "not spoken"),
        (
            after(SILENT, ErrorFact(call="nvmlInit", error="NVML_ERROR_UNKNOWN", message="Unknown Error")),
            "Unknown Error",
        ),
        (after_monitor_ended(answer(0), "the monitor said nothing for 20 s"), "said nothing"),
    ],
)
def test_case_010_a_failing_nvml_is_a_reason_with_the_nodes_that_are_present(view, why):
    problem = refused(seen(0), view)
    assert (problem.reason, problem.subject) == (Reason.NVML_UNAVAILABLE, "nvml")
    assert why in problem.message
    assert "1 node present, 0 usable" in problem.message


@pytest.mark.parametrize("view", [answer(), answer(5), answer(unread=("NVML_ERROR_GPU_IS_LOST",))])
def test_nvml_that_knows_none_of_the_nodes_is_no_pod_without_gpus(view):
    problem = refused(seen(0, 3), view)
    assert problem.reason is Reason.NVML_UNAVAILABLE
    assert "2 nodes present, 0 usable: NVML does not know /dev/nvidia0, /dev/nvidia3" in problem.message
    assert all(error in problem.message for error in view.unread)


def test_only_gpus_with_a_node_count_and_what_is_missing_on_either_side_is_named():
    found = judge(seen(2, 3), answer(2, 5))
    assert ([each.minor for each in found.inventory.gpus], found.driver) == ([2], "570.1")
    assert found.warnings == (
        "NVML does not know /dev/nvidia3",
        "NVML sees GPUs that this pod has no node of: /dev/nvidia5 (GPU-5)",
    )


def test_where_nodes_and_nvml_agree_there_is_nothing_to_warn_of():
    assert judge(seen(2, 5), answer(2, 5)).warnings == ()


def test_what_nvml_cannot_name_is_told_with_the_nodes_that_it_may_be():
    (warning,) = judge(seen(2, 5), answer(2, unread=("NVML_ERROR_GPU_IS_LOST",))).warnings
    assert warning == "NVML does not know /dev/nvidia5, and counts GPUs that it cannot name: NVML_ERROR_GPU_IS_LOST"


def test_a_lost_gpu_with_a_node_is_in_the_inventory_as_lost():
    found = judge(seen(2, 5), answer(2, 5, lost={5: "XID 79"}))
    assert [each.lost for each in found.inventory.gpus] == [None, "XID 79"]


def test_a_gpu_in_mig_mode_is_in_the_inventory_and_not_usable():
    fact = InventoryFact(driver="570.1", inventory=Inventory([attrs.evolve(gpu(0), mig_devices=())]))
    found = judge(seen(0), after(SILENT, fact))
    assert (len(found.inventory.gpus), found.inventory.usable) == (1, ())


@pytest.mark.anyio
async def test_all_of_it_in_one(world):
    found = judge(await looked(world), answer(7, 5))
    assert [each.minor for each in found.inventory.gpus] == [5, 7]
