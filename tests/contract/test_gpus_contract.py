"""The GPUs' own word: what holds for the real monitor at a mock node, for the script of a node without a compiler,
and for the simulated one at a simulated node.
"""

from __future__ import annotations

from functools import partial
from operator import eq
from typing import TYPE_CHECKING, Final

import pytest

from actors.gpu.facts import ErrorFact, InventoryFact, MemoryFact, ProcessesFact, XidFact
from sim.world.gpus import GIB
from sim.world.nvml import Return, Symbol, Trouble
from tests.contract.gpu_nodes import (
    MINORS,
    MockGpuNode,
    listening,
    lost,
    mock_gpu_node,
    scripted_gpu_node,
    uuid,
    world_gpu_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.contract.gpu_nodes import GpuStory

pytestmark = pytest.mark.anyio
TRIES: Final = 50


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> MockGpuNode:
    return mock_gpu_node(tmp_path_factory.mktemp("mock"))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> MockGpuNode:
    return scripted_gpu_node(tmp_path_factory.mktemp("script"))


SCRIPT_IS_LONG: Final = pytest.param("script", marks=pytest.mark.long)
"""The script is the simulated one's code on a mock node's files: once in a while is enough."""


@pytest.fixture(params=["mock", SCRIPT_IS_LONG, "simulated"])
def node(request: pytest.FixtureRequest) -> Iterator[GpuStory]:
    if request.param == "simulated":
        yield world_gpu_node()
    else:
        node: MockGpuNode = request.getfixturevalue(request.param)
        yield node
        node.restore()


async def test_the_first_word_is_the_whole_inventory_and_who_computes_on_each_gpu(node: GpuStory):
    node.occupy(5, 4711, 42)
    async with listening(node) as listener:
        fact = await listener.inventory()
        assert (fact.driver, fact.unread) == ("580.65.06", ())
        assert [(gpu.minor, gpu.uuid, gpu.pci_bus_id, gpu.mig_devices, gpu.lost) for gpu in fact.inventory.gpus] == [
            (2, uuid(2), "0000:3e:00.0", None, None),
            (3, uuid(3), "0000:3c:00.0", None, None),
            (5, uuid(5), "0000:3b:00.0", None, None),
            (7, uuid(7), "0000:3d:00.0", None, None),
        ]
        told = [fact for fact in listener.facts if isinstance(fact, ProcessesFact)]
        assert {(fact.gpu, fact.pids) for fact in told} == {
            (uuid(minor), (42, 4711) if minor == 5 else ()) for minor in MINORS
        }


async def test_it_is_told_again_and_again(node: GpuStory):
    async with listening(node) as listener:
        first = await listener.inventory()
        assert [await listener.inventory() for _ in range(3)] == [first] * 3


async def test_who_comes_and_goes_is_told(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.occupy(3, 4711)
        await listener.until(lambda fact: fact == ProcessesFact(gpu=uuid(3), pids=(4711,)))
        node.occupy(3)
        gone = ProcessesFact(gpu=uuid(3), pids=())
        assert await listener.until(lambda fact: fact == gone) == gone


async def test_how_much_memory_is_in_use_is_told(node: GpuStory):
    node.occupy(5, 42, 4711)
    wanted = {MemoryFact(gpu=uuid(5), used_bytes=2 * GIB), MemoryFact(gpu=uuid(7), used_bytes=0)}
    async with listening(node) as listener:
        for each in wanted:
            assert await listener.until(partial(eq, each)) == each


async def test_a_gpu_that_falls_off_the_bus_is_lost_with_its_xid_and_back_when_it_answers(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.lose(5)
        await listener.until(lambda fact: fact == XidFact(gpu=uuid(5), xid=79))
        last = await listener.losses(gpu5="XID 79")
        assert len(last.inventory.gpus) == 4
        node.recover(5)
        assert (await listener.losses()).unread == ()


async def test_what_follows_on_an_xid_is_a_look_and_nothing_else(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.lose(5)
        xid = await listener.until(lambda fact: isinstance(fact, XidFact))
        place = listener.facts.index(xid) + 1
        if len(listener.facts) == place:
            await listener.inventory()
        look = listener.facts[place]
        assert isinstance(look, InventoryFact)
        assert lost(look) == {5: "XID 79"}


@pytest.mark.parametrize("xid", [13, 94, 999])
async def test_an_xid_of_an_application_is_told_and_its_gpu_stays(node: GpuStory, xid: int):
    async with listening(node) as listener:
        await listener.inventory()
        node.report(7, xid)
        await listener.until(lambda fact: fact == XidFact(gpu=uuid(7), xid=xid))
        assert lost(await listener.inventory()) == {}


async def test_a_gpu_with_a_fatal_xid_is_not_offered_again_because_it_answers(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.report(7, 95)
        for _ in range(3):
            await listener.losses(gpu7="XID 95")
        # It is reset: it does not answer for a while.
        node.spoil(Symbol.HANDLE_BY_INDEX, Return.RESET_REQUIRED, 7)
        for _ in range(3):  # one may have been on its way, and one be of a look that had begun
            await listener.inventory()
        node.heal()
        assert (await listener.losses()).unread == ()


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        (Symbol.HANDLE_BY_INDEX, Return.GPU_IS_LOST),
        (Symbol.UUID, Return.RESET_REQUIRED),
        (Symbol.MIG_MODE, Return.UNKNOWN),
        (Symbol.COMPUTE_PROCESSES, Return.GPU_IS_LOST),
    ],
)
async def test_a_gpu_whose_calls_fail_is_lost_by_name(node: GpuStory, symbol: Symbol, code: Return):
    async with listening(node) as listener:
        await listener.inventory()
        node.spoil(symbol, code, 2)
        fact = await listener.losses(gpu2=f"NVML_ERROR_{code.name}")
        assert (fact.unread, fact.inventory.gpu(uuid(2)) is not None) == ((), True)
        node.heal()
        assert (await listener.losses()).unread == ()


async def test_a_gpu_in_mig_mode_has_mig_devices_if_only_none(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.put_in_mig_mode(3)
        fact = await listener.inventory(lambda fact: any(gpu.mig_devices is not None for gpu in fact.inventory.gpus))
        assert {gpu.minor: gpu.mig_devices for gpu in fact.inventory.gpus} == {2: None, 3: (), 5: None, 7: None}


async def test_processes_that_may_not_be_told_are_an_error_of_that_gpu_and_it_stays(node: GpuStory):
    node.spoil(Symbol.COMPUTE_PROCESSES, Return.NO_PERMISSION, 2)
    async with listening(node) as listener:
        assert lost(await listener.inventory()) == {}
        error = ErrorFact(
            call="nvmlDeviceGetComputeRunningProcesses",
            error="NVML_ERROR_NO_PERMISSION",
            gpu=uuid(2),
            message="Insufficient Permissions",
        )
        assert error in listener.facts
        assert uuid(2) not in {fact.gpu for fact in listener.facts if isinstance(fact, ProcessesFact)}


async def test_a_gpu_that_never_could_be_named_is_counted(node: GpuStory):
    node.spoil(Symbol.HANDLE_BY_INDEX, Return.GPU_IS_LOST, 5)
    async with listening(node) as listener:
        fact = await listener.inventory()
        assert fact.unread == ("NVML_ERROR_GPU_IS_LOST",)
        assert [gpu.minor for gpu in fact.inventory.gpus] == [2, 3, 7]
        node.heal()
        assert len((await listener.inventory(lambda fact: fact.unread == ())).inventory.gpus) == 4


async def test_a_node_that_comes_late_is_a_gpu_more(node: GpuStory):
    node.hide_node(7)
    async with listening(node) as listener:
        assert [gpu.minor for gpu in (await listener.inventory()).inventory.gpus] == [2, 3, 5]
        node.show_node(7)
        assert lost(await listener.inventory(lambda fact: len(fact.inventory.gpus) == 4)) == {}


async def test_without_a_driver_there_is_a_reason_and_no_inventory_until_there_is_one(node: GpuStory):
    node.load_driver(None)
    async with listening(node) as listener:
        error = await listener.error()
        assert error == ErrorFact(call="nvmlInit", error="NVML_ERROR_DRIVER_NOT_LOADED", message="Driver Not Loaded")
        assert await listener.error() == error
        assert listener.facts == [error] * len(listener.facts)
        node.load_driver("580.65.06")
        assert len((await listener.inventory()).inventory.gpus) == 4


async def test_a_driver_that_is_unloaded_is_one_error_of_nvml_and_no_gpu_is_lost(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.load_driver(None)
        assert (await listener.error()).gpu is None
        node.load_driver("580.65.06")
        assert lost(await listener.inventory()) == {}


async def test_another_module_than_the_libraries_names_both(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.load_driver("590.48.01")
        error = await listener.until(lambda fact: isinstance(fact, ErrorFact))
        assert isinstance(error, ErrorFact)
        assert error.error == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
        versions = "the libraries are of 580.65.06, the loaded module is 590.48.01"
        assert error.message == f"Driver/library version mismatch: {versions}"
        node.load_driver("580.65.06")
        assert (await listener.inventory()).driver == "580.65.06"


@pytest.fixture(
    params=[
        pytest.param(mock_gpu_node, id="mock"),
        pytest.param(scripted_gpu_node, id="script", marks=pytest.mark.long),
        pytest.param(lambda _: world_gpu_node(), id="simulated"),
    ]
)
def own_node(request: pytest.FixtureRequest, tmp_path: Path) -> GpuStory:
    """For this test only: what it does cannot be undone."""
    make: Callable[[Path], GpuStory] = request.param
    return make(tmp_path)


async def test_who_has_the_old_library_after_an_upgrade_ends_so_that_another_one_loads_the_new(own_node: GpuStory):
    node = own_node
    async with listening(node) as listener:
        await listener.inventory()
        node.install_library("590.48.01")
        assert (await listener.inventory()).driver == "580.65.06"  # it goes on as long as the old one works
        node.load_driver("590.48.01")
        assert (await listener.error()).error == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
        await listener.end()


async def test_devices_that_may_not_be_opened_are_an_unknown_error(node: GpuStory):
    async with listening(node) as listener:
        await listener.inventory()
        node.deny()
        error = await listener.error()
        assert (error.error, error.message, error.gpu) == ("NVML_ERROR_UNKNOWN", "Unknown Error", None)
        node.allow()
        assert (await listener.losses()).unread == ()


async def test_a_library_that_comes_late_is_loaded(node: GpuStory):
    node.hide_library()
    async with listening(node) as listener:
        error = await listener.error()
        assert (error.call, error.error) == ("nvmlInit", "NVML_ERROR_LIBRARY_NOT_FOUND")
        node.show_library()
        assert len((await listener.inventory()).inventory.gpus) == 4


# Those of nvidia-ctk are not the monitor's, and instances are asked for in MIG mode only.
OTHERS = {Symbol.HANDLE_BY_UUID, Symbol.INDEX, Symbol.MEMORY, Symbol.MIG_INSTANCE}
SOME = {Symbol.INIT, Symbol.UUID, Symbol.EVENT_SET_WAIT}
"""What is tried in every run; a process for each call of NVML takes its time."""
CALLS = [
    pytest.param(symbol, marks=() if symbol in SOME else pytest.mark.long) for symbol in Symbol if symbol not in OTHERS
]


@pytest.mark.parametrize("symbol", CALLS)
async def test_a_call_that_never_returns_is_a_monitor_that_says_nothing_more(node: GpuStory, symbol: Symbol):
    async with listening(node) as listener:
        await listener.inventory()
        node.spoil(symbol, Trouble.HANG)
        node.hide_node(7)  # which ends a session and begins another
        await listener.silence()
        node.heal()
        heard = len(listener.facts)
        await listener.silence()
        assert len(listener.facts) == heard


@pytest.mark.parametrize("symbol", CALLS)
async def test_a_call_that_crashes_is_a_monitor_that_ends(node: GpuStory, symbol: Symbol):
    async with listening(node) as listener:
        await listener.inventory()
        node.spoil(symbol, Trouble.CRASH)
        node.hide_node(7)
        await listener.end()
        assert await listener.monitor.receive() == b""


async def test_waiting_for_xids_that_fails_leaves_the_heartbeat(node: GpuStory):
    node.spoil(Symbol.EVENT_SET_WAIT, Return.UNKNOWN)
    async with listening(node) as listener:
        for _ in range(3):
            await listener.losses()
        node.heal()
        told = XidFact(gpu=uuid(3), xid=94)
        for _ in range(TRIES):  # it listens again some time, and hears what comes then
            node.report(3, 94)
            for _ in range(8):
                await listener.losses()
            if told in listener.facts:
                break
        assert told in listener.facts
