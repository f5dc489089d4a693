"""The model of NVML: what it answers, with which code it fails, and when it does not return at all."""

from pathlib import Path

import pynvml
import pytest

from sim.world.gpus import FELL_OFF_THE_BUS, ComputeProcess, Driver, Gpu, some_gpus
from sim.world.nvml import Nvml, NvmlCrashes, NvmlError, NvmlHangs, Return, Symbol, Trouble, XidEvent
from sim.world.world import Machine, World

MINORS = (7, 2, 5, 3)


def world_of(*minors: int, **driver: object) -> World:
    gpus = some_gpus(len(minors), minors=minors)
    return World(machine=Machine(gpus=gpus, driver=Driver(**driver)))  # type: ignore[arg-type]


def loaded(world: World) -> Nvml:
    nvml = world.gpus.load_nvml()
    nvml.init()
    return nvml


def code_of(call, *arguments) -> Return:
    with pytest.raises(NvmlError) as caught:
        call(*arguments)
    return caught.value.code


@pytest.fixture
def world() -> World:
    return world_of(*MINORS)


def test_codes_have_the_numbers_and_symbols_the_names_of_the_real_binding():
    for code in Return:
        assert getattr(pynvml, f"NVML_ERROR_{code.name}") == code
    source = Path(pynvml.__file__).read_text()
    assert [symbol for symbol in Symbol if f'"{symbol}"' not in source] == []


def test_an_index_is_neither_minor_nor_bus(world):
    nvml = loaded(world)
    handles = [nvml.handle_by_index(index) for index in range(nvml.count())]
    assert [nvml.minor(handle) for handle in handles] == list(MINORS)
    assert [nvml.index(handle) for handle in handles] == [0, 1, 2, 3]
    assert [nvml.pci_bus_id(handle)[9:11] for handle in handles] == ["3D", "3E", "3B", "3C"]
    assert [nvml.handle_by_uuid(nvml.uuid(handle)) for handle in handles] == handles


def test_the_index_is_dense_over_the_nodes_that_are_there(world):
    world.gpus.remove_node("nvidia7")
    nvml = loaded(world)
    assert nvml.count() == 3
    assert nvml.minor(nvml.handle_by_index(0)) == 2


def test_a_node_that_comes_late_is_seen_by_who_loads_it_anew():
    world = world_of(4, 1, has_nodes=False)
    world.gpus.make_nodes(1)
    early = loaded(world)
    world.gpus.make_nodes()
    assert (early.count(), loaded(world).count()) == (1, 2)


def test_a_gpu_tells_what_it_is():
    gpu = Gpu(uuid="GPU-a", minor=0, pci_bus_id="00000000:3B:00.0", model="A Model", memory_bytes=100)
    split = Gpu(uuid="GPU-b", minor=1, pci_bus_id="00000000:3C:00.0", is_in_mig_mode=True)
    world = World(machine=Machine(gpus=(gpu, split)))
    nvml = loaded(world)
    first, second = nvml.handle_by_index(0), nvml.handle_by_index(1)
    assert (nvml.name(first), nvml.uuid(first), nvml.driver_version()) == ("A Model", "GPU-a", "580.65.06")
    assert (nvml.mig_mode(first), nvml.mig_mode(second)) == ((0, 0), (1, 1))
    assert (nvml.compute_processes(first), nvml.memory(first)) == ((), (100, 0))
    process = ComputeProcess(pid=42, used_bytes=30)
    world.gpus.occupy(0, process)
    assert (nvml.compute_processes(first), nvml.memory(first)) == ((process,), (100, 30))
    world.gpus.occupy(0)
    assert nvml.compute_processes(first) == ()


# ---- codes


def without_library(world: World) -> None:
    directory = world.disk.find_directory(Path("/usr/lib64"))
    world.disk.remove(directory, "libnvidia-ml.so.580.65.06")


def with_a_broken_library(world: World) -> None:
    world.disk.cut(world.disk.find_regular(world.gpus.library), 0)


REFUSALS = {
    Return.LIBRARY_NOT_FOUND: [without_library, with_a_broken_library],
    Return.DRIVER_NOT_LOADED: [lambda world: world.gpus.unload_driver(), lambda w: w.gpus.remove_node("nvidiactl")],
    Return.LIB_RM_VERSION_MISMATCH: [lambda world: world.gpus.upgrade_driver("590.48.01")],
    Return.UNKNOWN: [lambda world: world.gpus.deny_devices()],
    Return.NO_PERMISSION: [lambda world: world.gpus.spoil(Symbol.INIT, Return.NO_PERMISSION)],
    Return.GPU_NOT_FOUND: [lambda world: world.gpus.spoil(Symbol.INIT, Return.GPU_NOT_FOUND)],
}


@pytest.mark.parametrize(("code", "spoil"), [(code, spoil) for code, ways in REFUSALS.items() for spoil in ways])
def test_it_cannot_be_initialised_and_says_why(world, code, spoil):
    spoil(world)
    nvml = world.gpus.load_nvml()
    assert code_of(nvml.init) is code
    assert code_of(nvml.count) is Return.UNINITIALIZED


def test_what_refused_it_passes_by_itself(world):
    nvml = world.gpus.load_nvml()
    fault = world.gpus.spoil(Symbol.INIT, Return.DRIVER_NOT_LOADED, times_max=2)
    assert [code_of(nvml.init), code_of(nvml.init)] == [Return.DRIVER_NOT_LOADED] * 2
    nvml.init()
    assert (nvml.count(), fault.fired) == (4, 2)


def test_after_an_upgrade_who_has_the_old_library_goes_on_until_the_module_is_exchanged(world):
    old = loaded(world)
    world.gpus.upgrade_driver("590.48.01")
    assert old.count() == 4
    assert code_of(world.gpus.load_nvml().init) is Return.LIB_RM_VERSION_MISMATCH
    world.gpus.reload_driver()
    assert code_of(old.count) is Return.LIB_RM_VERSION_MISMATCH
    assert loaded(world).driver_version() == "590.48.01"


def test_who_loses_access_to_devices_reads_unknown_error_until_it_is_given_back(world):
    nvml = loaded(world)
    world.gpus.deny_devices()
    assert code_of(nvml.count) is Return.UNKNOWN
    world.gpus.allow_devices()
    assert nvml.count() == 4


ABOUT_A_GPU = [
    Nvml.index,
    Nvml.uuid,
    Nvml.name,
    Nvml.minor,
    Nvml.pci_bus_id,
    Nvml.memory,
    Nvml.mig_mode,
    Nvml.compute_processes,
]


@pytest.mark.parametrize("question", ABOUT_A_GPU, ids=lambda question: question.__name__)
def test_a_lost_gpu_is_counted_and_answers_nothing_until_it_is_back(world, question):
    nvml = loaded(world)
    handle, other = nvml.handle_by_index(1), nvml.handle_by_index(0)
    before = question(nvml, handle)
    world.gpus.lose(2)
    assert nvml.count() == 4
    assert code_of(question, nvml, handle) is Return.GPU_IS_LOST
    assert code_of(nvml.handle_by_index, 1) is Return.GPU_IS_LOST
    assert code_of(nvml.handle_by_uuid, world.gpus.gpu(2).uuid) is Return.GPU_IS_LOST
    question(nvml, other)
    world.gpus.recover(2)
    assert question(nvml, handle) == before


def test_what_there_is_not_has_a_code_of_its_own(world):
    nvml = loaded(world)
    assert {code_of(nvml.handle_by_index, index) for index in (4, -1)} == {Return.INVALID_ARGUMENT}
    assert code_of(nvml.handle_by_uuid, "GPU-nobody") is Return.NOT_FOUND
    nvml.shutdown()
    assert code_of(nvml.handle_by_index, 0) is Return.UNINITIALIZED


@pytest.mark.parametrize("code", Return)
def test_any_function_can_return_any_code_for_one_gpu(world, code):
    nvml = loaded(world)
    fault = world.gpus.spoil(Symbol.NAME, code, minor=5)
    assert nvml.name(nvml.handle_by_index(0))
    assert code_of(nvml.name, nvml.handle_by_index(2)) is code
    world.gpus.heal(fault)
    assert nvml.name(nvml.handle_by_index(2))
    assert fault.fired == 1


@pytest.mark.parametrize("symbol", [Symbol.INIT, Symbol.COUNT, Symbol.HANDLE_BY_INDEX])
@pytest.mark.parametrize(("trouble", "raised"), [(Trouble.HANG, NvmlHangs), (Trouble.CRASH, NvmlCrashes)])
def test_it_can_hang_and_crash_anywhere(world, symbol, trouble, raised):
    def ask() -> None:
        nvml = loaded(world)
        nvml.count()
        nvml.handle_by_index(0)

    ask()
    world.gpus.spoil(symbol, trouble)
    with pytest.raises(raised, match=symbol):
        ask()


# ---- events


def test_an_xid_is_told_once_to_everybody_who_asked_for_that_gpu(world):
    nvml, other = loaded(world), loaded(world)
    both, one = nvml.event_set_create(), other.event_set_create()
    for index in range(2):
        nvml.register_xids(nvml.handle_by_index(index), both)
    other.register_xids(other.handle_by_index(0), one)
    world.gpus.report(2, 94)
    world.gpus.report(3, 13)
    assert nvml.event_set_wait(both) == XidEvent(handle=nvml.handle_by_index(1), xid=94)
    assert code_of(nvml.event_set_wait, both) is Return.TIMEOUT
    assert code_of(other.event_set_wait, one) is Return.TIMEOUT
    world.gpus.report(7, 31)
    assert [nvml.event_set_wait(both).xid, other.event_set_wait(one).xid] == [31, 31]


def test_a_gpu_that_is_lost_says_so_before_it_falls_silent(world):
    nvml = loaded(world)
    events = nvml.event_set_create()
    came: list[int] = []
    events.told.append(lambda: came.append(len(events.pending)))
    nvml.register_xids(nvml.handle_by_index(3), events)
    world.gpus.lose(3)
    assert came == [1]
    assert nvml.event_set_wait(events).xid == FELL_OFF_THE_BUS


def test_who_listens_no_more_hears_nothing(world):
    nvml = loaded(world)
    events = nvml.event_set_create()
    nvml.register_xids(nvml.handle_by_index(0), events)
    nvml.event_set_free(events)
    world.gpus.report(7, 31)
    assert not events.pending
    assert not world.gpus.listeners
