"""GPUs of the simulated world: what its disk has of them, and what happens to them, the driver and the toolkit."""

from pathlib import Path

import orjson
import pytest

from actors.ports import FileKind
from sim.documents import counter
from sim.engine import run
from sim.scenario import Stage
from sim.world import scenery
from sim.world.gpus import FELL_OFF_THE_BUS, Driver, Gpu, Health, Toolkit, some_gpus
from sim.world.nodes import Special, SpecialNode
from sim.world.world import ROOTFS, RUNSC, Machine, World
from statemachine.states import State

FOUR = Machine(gpus=some_gpus(4, minors=(7, 2, 5, 3)))
OF_RUNSC = "550.90.07"
"""A driver that the simulated runsc knows."""
KNOWN = Machine(gpus=some_gpus(4), driver=Driver(version=OF_RUNSC))
DEV = Path("/dev")


async def ignore_gpus(here):
    await here.submit(counter())
    await here.reach(State.RUNNING)
    await here.stop()


def numbers(world: World) -> dict[str, tuple[int, int] | None]:
    return {
        name: node.device
        for name, node in world.disk.find_directory(DEV).entries.items()
        if isinstance(node, SpecialNode) and node.kind is FileKind.CHARACTER_DEVICE and node.mode == 0o666
    }


def test_a_machine_without_gpus_has_nothing_of_them():
    world = World()
    assert not {"dev", "proc"} & set(world.disk.find_directory(Path("/")).entries)
    assert not world.files_below(Path("/usr/local"))
    assert not world.gpus.has_driver


def test_nodes_are_character_devices_with_the_numbers_of_the_driver_that_everybody_may_open():
    assert numbers(World(machine=FOUR)) == {
        "nvidiactl": (195, 255),
        "nvidia7": (195, 7),
        "nvidia2": (195, 2),
        "nvidia5": (195, 5),
        "nvidia3": (195, 3),
        "nvidia-uvm": (511, 0),
        "nvidia-uvm-tools": (511, 1),
    }


def test_the_supervisor_sees_them_through_its_port():
    async def scenario(here):
        files = here.worker.ports.files
        stat = await files.lstat(DEV / "nvidia7")
        assert (stat.kind, stat.device) == (FileKind.CHARACTER_DEVICE, (195, 7))
        version = await files.read(Path("/proc/driver/nvidia/version"), limit_bytes=1000)
        assert b" 580.65.06\n" in version
        assert b"ModifyDeviceFiles: 1\n" in await files.read(Path("/proc/driver/nvidia/params"), limit_bytes=1000)
        assert await files.list_directory(Path("/proc/driver/nvidia/gpus")) == tuple(
            sorted(gpu.proc_bus_id for gpu in FOUR.gpus)
        )

    run(scenario, machine=FOUR)


def test_index_minor_and_bus_are_three_orders():
    gpus = some_gpus(4)
    by_minor = sorted(gpus, key=lambda gpu: gpu.minor)
    by_bus = sorted(gpus, key=lambda gpu: gpu.pci_bus_id)
    assert len({gpus, tuple(by_minor), tuple(by_bus)}) == 3


def test_no_two_gpus_have_one_minor():
    with pytest.raises(ValueError, match="one minor"):
        World(machine=Machine(gpus=some_gpus(2, minors=(1, 1))))


def test_roots_are_where_the_machine_has_them():
    driver = Driver(root=Path("/usr/local/nvidia"), libraries=Path("/lib64"), dev_root=Path("/host"))
    world = World(machine=Machine(gpus=some_gpus(1), driver=driver))
    assert "nvidia0" in world.files_below(Path("/host/dev"))
    assert world.files_below(Path("/usr/local/nvidia/lib64"))["libcuda.so.1"] == "libcuda.so.580.65.06"
    assert world.gpus.has_driver


def test_a_lost_gpu_comes_back_with_its_history_and_without_its_processes():
    world = World(machine=FOUR)
    world.gpus.report(5, 94)
    world.gpus.lose(5)
    assert world.gpus.gpu(5).health is Health.LOST
    world.gpus.recover(5)
    gpu = world.gpus.gpu(5)
    assert (gpu.health, gpu.xids, gpu.processes) == (Health.HEALTHY, (94, FELL_OFF_THE_BUS), ())
    assert all(world.gpus.gpu(minor).xids == () for minor in (7, 2, 3))


def test_nodes_come_late_one_by_one_or_all_at_once():
    world = World(machine=Machine(gpus=some_gpus(2), driver=Driver(has_nodes=False)))
    assert numbers(world) == {}
    assert not world.gpus.has_driver
    world.gpus.make_nodes(1)
    assert set(numbers(world)) == {"nvidiactl", "nvidia1", "nvidia-uvm", "nvidia-uvm-tools"}
    world.gpus.make_nodes()
    assert set(numbers(world)) >= {"nvidia0", "nvidia1"}


def test_a_node_that_goes_or_is_a_file_is_no_device():
    world = World(machine=FOUR)
    world.gpus.remove_node("nvidia7")
    scenery.put_file(world.disk, DEV / "nvidia2")
    assert [gpu.minor for gpu in world.gpus.visible()] == [5, 3]
    world.gpus.remove_node("nvidiactl")
    assert not world.gpus.has_driver


def test_an_upgrade_exchanges_the_libraries_at_once_and_the_module_later():
    world = World(machine=FOUR)
    before = set(world.files_below(Path("/usr/lib64")))
    world.gpus.upgrade_driver("590.48.01")
    after = world.files_below(Path("/usr/lib64"))
    assert "libcuda.so.580.65.06" in before - set(after)
    assert after["libcuda.so.1"] == "libcuda.so.590.48.01"
    assert world.gpus.loaded_version == "580.65.06"
    assert b" 580.65.06\n" in world.read(Path("/proc/driver/nvidia/version"))
    world.gpus.reload_driver()
    assert world.gpus.loaded_version == "590.48.01"
    assert b" 590.48.01\n" in world.read(Path("/proc/driver/nvidia/version"))


def test_without_its_module_the_nodes_stay_and_nothing_is_told():
    world = World(machine=FOUR)
    world.gpus.unload_driver()
    assert "nvidiactl" in numbers(world)
    assert not world.gpus.has_driver
    assert "driver/nvidia/version" not in world.files_below(Path("/proc"))


def test_after_a_power_cut_the_installed_driver_is_loaded_and_uvm_has_another_number():
    async def scenario(here):
        here.world.gpus.upgrade_driver("590.48.01")
        here.world.gpus.deny_devices()
        await here.reboot()
        assert here.world.gpus.loaded_version == "590.48.01"
        assert here.world.gpus.has_driver
        assert numbers(here.world)["nvidia-uvm"] == (510, 0)
        assert numbers(here.world)["nvidia7"] == (195, 7)
        assert "self/mountinfo" in here.world.files_below(Path("/proc"))

    run(scenario, machine=FOUR)


def test_what_came_late_is_there_after_the_next_power_cut():
    async def scenario(here):
        here.world.gpus.mount_toolkit()
        here.world.gpus.make_nodes()
        here.world.gpus.reload_driver()
        await here.reboot()
        assert here.world.gpus.has_driver
        assert here.world.files_below(here.world.gpus.toolkit.directory)

    bare = Machine(
        gpus=some_gpus(1), driver=Driver(is_loaded=False, has_nodes=False), toolkit=Toolkit(is_mounted=False)
    )
    run(scenario, machine=bare)


def test_the_legacy_runtime_leaves_its_cover_in_mountinfo():
    world = World(machine=FOUR)
    mountinfo = Path("/proc/self/mountinfo")
    assert b" /proc/driver/nvidia " not in world.read(mountinfo)
    world.gpus.cover_proc()
    (line,) = [line for line in world.read(mountinfo).splitlines() if b" /proc/driver/nvidia " in line]
    assert b" - tmpfs " in line


# ---- runsc


async def create_with_nvproxy(here: Stage) -> tuple[int | None, bytes]:
    document = {
        "ociVersion": "1.0.2",
        "process": {"args": ["sleep", "1000"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"]},
        "root": {"path": str(ROOTFS)},
        "mounts": [],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
    }
    scenery.put_file(here.world.disk, Path("/bundle/config.json"), orjson.dumps(document))
    argv = [str(RUNSC), "--root=/run/other", "--overlay2=root:memory", "--nvproxy", "create", "--bundle=/bundle", "c1"]
    finished = await here.worker.ports.processes.run(argv, deadline_s=60, env={})
    return finished.exit.code, finished.stderr


def break_nothing(world: World) -> None:
    assert world.gpus.has_driver


def remove_control_node(world: World) -> None:
    world.gpus.remove_node("nvidiactl")


def unload(world: World) -> None:
    world.gpus.unload_driver()


@pytest.mark.parametrize(
    ("machine", "breaking", "code"),
    [(KNOWN, break_nothing, 0), (KNOWN, remove_control_node, 128), (KNOWN, unload, 128), (Machine(), None, 128)],
)
def test_nvproxy_starts_where_the_driver_can_be_opened_and_nowhere_else(machine, breaking, code):
    async def scenario(here):
        if breaking is not None:
            breaking(here.world)
        ended, said = await create_with_nvproxy(here)
        assert ended == code, said
        assert (b"failed to get Nvidia driver version" in said) is (code != 0)

    run(scenario, machine=machine)


def test_the_driver_may_come_after_runsc_has_failed_for_want_of_it():
    async def scenario(here):
        assert (await create_with_nvproxy(here))[0] == 128
        here.world.gpus.reload_driver()
        assert (await create_with_nvproxy(here))[0] == 0

    run(scenario, machine=Machine(gpus=some_gpus(1), driver=Driver(version=OF_RUNSC, is_loaded=False)))


# ---- the same run for the same seed


def of_the_actor(record):
    """The ways it went, the whole commands of runsc, and what is left of it; not the worker's own look at the GPUs."""
    commands = [call.argument for call in record.calls if f"{RUNSC} --root=" in call.argument]
    files = {name: text for name, text in record.files.items() if name.endswith(("assignment.json", "main.log"))}
    return record.states("a1"), commands, files


def test_whoever_claims_none_lives_as_on_a_machine_without():
    with_gpus, without = (run(ignore_gpus, seed=5, machine=machine) for machine in (FOUR, Machine()))
    assert len(of_the_actor(without)[1]) > 5
    assert len(of_the_actor(without)[2]) == 2
    assert of_the_actor(with_gpus) == of_the_actor(without)


def test_the_same_seed_is_the_same_run_whatever_happens_to_gpus():
    async def scenario(here):
        here.world.gpus.lose(2)
        await ignore_gpus(here)
        here.world.gpus.upgrade_driver("590.48.01")
        ctk = str(here.world.gpus.toolkit.program)
        ran = await here.worker.ports.processes.run(
            [ctk, "cdi", "generate", "--device-id=0"], deadline_s=9, env={"TMPDIR": "/run/x"}
        )
        said.append((ran, orjson.dumps(sorted(map(str, here.world.files_below(DEV))))))

    said: list[object] = []
    assert run(scenario, seed=8, machine=FOUR) == run(scenario, seed=8, machine=FOUR)
    assert said[0] == said[1]


def test_a_gpu_is_a_value():
    assert some_gpus(2) == some_gpus(2)
    with pytest.raises(AttributeError):
        some_gpus(1)[0].minor = 4  # type: ignore[misc]
    assert Gpu(uuid="u", minor=0, pci_bus_id="00000000:3B:00.0").proc_bus_id == "0000:3b:00.0"


def test_only_a_device_that_stands_there_is_looked_through():
    world = World(machine=FOUR)
    scenery.put_special(world.disk, DEV / "nvidia7", Special.FIFO, mode=0o666)
    assert 7 not in {gpu.minor for gpu in world.gpus.visible()}
