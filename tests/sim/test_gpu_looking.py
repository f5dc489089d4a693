"""What the monitor makes of NVML that cannot name a GPU, contradicts itself or fails: look by look, without time."""

import attrs
import pytest

from actors.gpu.facts import ErrorFact, InventoryFact, MemoryFact
from actors.ports import DriverPlaces
from sim.world.gpus import ComputeProcess, some_gpus
from sim.world.nvml import NvmlFault, Return, Symbol
from sim.world.nvml_library import SimLibrary
from sim.world.world import Machine, World
from supervisor.gpu_monitor.looking import REST_LOOKS, Looking

MINORS = (7, 2, 5, 3)


class Eye:
    """Who looks at a machine with four GPUs."""

    def __init__(self):
        self.gpus = World(machine=Machine(gpus=some_gpus(4, minors=MINORS))).gpus
        self.looking = Looking(SimLibrary(self.gpus, DriverPlaces(), lambda: None))

    def look(self):
        fact, *_ = self.looking.look()
        return fact

    def losses(self):
        fact = self.look()
        assert isinstance(fact, InventoryFact)
        return {gpu.minor: gpu.lost for gpu in fact.inventory.gpus if gpu.lost is not None}, fact.unread

    def error(self):
        fact = self.look()
        assert isinstance(fact, ErrorFact)
        return fact

    def exchange(self, minor, **changes):
        """Another board, or one that says something else of itself."""
        self.gpus._gpus[minor] = attrs.evolve(self.gpus.gpu(minor), **changes)


@pytest.fixture
def eye():
    return Eye()


class Calls(NvmlFault):
    """Counts the calls of a function, and does nothing to them."""

    def consider(self, symbol, _minor):
        self.fired += symbol is self.symbol


def calls(eye, symbol):
    counting = Calls(symbol=symbol, what=Return.UNKNOWN)
    eye.gpus.nvml_faults.append(counting)
    return counting


def test_lost_gpus_are_named_also_in_a_new_session_if_as_many_are_gone_as_cannot_be_named(eye):
    eye.look()
    for minor in (7, 3):
        eye.gpus.lose(minor)
    eye.looking.look()
    for _ in range(12):
        assert eye.losses() == ({7: "NVML_ERROR_GPU_IS_LOST", 3: "NVML_ERROR_GPU_IS_LOST"}, ())


def used(eye):
    return {fact.gpu: fact.used_bytes for fact in eye.looking.look() if isinstance(fact, MemoryFact)}


def test_the_used_memory_of_each_gpu_that_tells_it_is_told(eye):
    eye.gpus.occupy(5, ComputeProcess(pid=4711, used_bytes=7), ComputeProcess(pid=42, used_bytes=5))
    found, busy = used(eye), eye.gpus.gpu(5).uuid
    assert found == {eye.gpus.gpu(minor).uuid: 12 if minor == 5 else 0 for minor in MINORS}
    eye.gpus.nvml_faults.append(NvmlFault(symbol=Symbol.MEMORY, what=Return.NOT_SUPPORTED, minor=5))
    assert set(used(eye)) == set(found) - {busy}
    assert eye.losses() == ({}, ())


def test_where_it_is_not_known_which_one_cannot_be_named_none_is_accused(eye):
    eye.look()
    eye.gpus.lose(7)
    eye.gpus.remove_node("nvidia3")
    for _ in range(12):
        assert eye.losses() == ({}, ("NVML_ERROR_GPU_IS_LOST",))


def test_another_board_in_the_place_of_a_lost_one_is_no_lost_gpu(eye):
    eye.look()
    eye.gpus.lose(5)
    assert eye.losses()[0] == {5: "NVML_ERROR_GPU_IS_LOST"}
    eye.gpus.recover(5)
    eye.exchange(5, uuid="GPU-another")
    assert eye.losses() == ({}, ())
    assert {gpu.minor: gpu.uuid for gpu in eye.look().inventory.gpus}[5] == "GPU-another"


def test_two_gpus_with_one_name_are_an_error_of_nvml(eye):
    eye.exchange(5, uuid=eye.gpus.gpu(7).uuid)
    eye.exchange(2, pci_bus_id=eye.gpus.gpu(3).pci_bus_id)
    error = eye.error()
    assert (error.error, error.gpu) == ("NVML_ERROR_UNKNOWN", None)
    assert "two GPUs have the" in error.message


@pytest.mark.parametrize("changes", [{"uuid": "no uuid"}, {"pci_bus_id": "somewhere"}])
def test_what_is_no_name_is_a_gpu_that_cannot_be_named(eye, changes):
    eye.exchange(5, **changes)
    assert eye.losses() == ({}, ("NVML_ERROR_UNKNOWN",))
    assert len(eye.look().inventory.gpus) == 3


def test_a_failure_of_all_nvml_ends_what_a_fatal_xid_began(eye):
    eye.look()
    eye.looking.hear(eye.gpus.gpu(5).uuid, 95)
    assert eye.losses()[0] == {5: "XID 95"}
    eye.gpus.unload_driver()
    eye.error()
    eye.gpus.reload_driver()
    assert eye.losses() == ({}, ())


def test_another_fatal_xid_begins_the_rest_anew(eye):
    eye.look()
    uuid = eye.gpus.gpu(5).uuid
    eye.looking.hear(uuid, 95)
    for _ in range(REST_LOOKS - 1):
        assert eye.losses()[0] == {5: "XID 95"}
    eye.looking.hear(uuid, 48)
    for _ in range(REST_LOOKS):
        assert eye.losses()[0] == {5: "XID 48"}
    assert eye.losses() == ({}, ())


def test_an_xid_of_nobody_and_of_a_stranger_takes_nothing_out(eye):
    eye.look()
    assert eye.looking.hear(None, 79)[0].gpu is None
    eye.looking.hear("GPU-stranger", 79)
    assert eye.losses() == ({}, ())


def test_a_failure_is_told_at_every_look_and_tried_at_every_fourth_in_the_end(eye):
    eye.gpus.unload_driver()
    tried = calls(eye, Symbol.INIT)
    first = eye.error()
    assert [eye.error() for _ in range(39)] == [first] * 39
    assert 10 <= tried.fired <= 13


def test_after_a_success_the_next_failure_is_tried_at_once_again(eye):
    for _ in range(3):
        eye.gpus.unload_driver()
        for _ in range(10):
            eye.error()
        eye.gpus.reload_driver()
        while not isinstance(eye.look(), InventoryFact):
            pass
    eye.gpus.unload_driver()
    eye.error()
    eye.gpus.reload_driver()
    assert eye.losses() == ({}, ())


def test_a_session_goes_on_as_long_as_nothing_is_missing(eye):
    begun = calls(eye, Symbol.INIT)
    for _ in range(20):
        eye.look()
    assert begun.fired == 1
