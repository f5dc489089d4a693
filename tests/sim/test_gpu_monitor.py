"""The watch over the GPU monitor in the simulated world: every call can fail, hang, be slow and lie, and NVML can too.

There is no worker here, which would have a watch of its own: only one watch, and the calls that it makes.
"""

from contextlib import asynccontextmanager
from itertools import pairwise

import attrs
import pytest
import trio

from actors.gpu.view import NvmlAnswers, NvmlFails
from actors.ports import DriverPlaces
from sim.engine import run_in_virtual_time
from sim.faults import Fail, Fault, Hang, Lie, Slow, When
from sim.lies import LIES
from sim.world.calls import CHANGING, FencedError, Gate
from sim.world.gated_gpus import GatedGpus
from sim.world.gpu_monitor import COMMAND_LINE, SimGpus
from sim.world.gpus import some_gpus
from sim.world.nvml import Return, Symbol, Trouble
from sim.world.process_table import SimProcess
from sim.world.world import Machine, World
from supervisor.gpu_monitor.looking import HEARTBEAT_S, REST_LOOKS
from supervisor.gpu_watch import FIRST_WORD_S, SILENCE_S, GpuWatch

FOUR = Machine(gpus=some_gpus(4, minors=(7, 2, 5, 3)))
LONG_S = 600.0
LONGEST_DELAY_S = 30.0


@attrs.frozen
class Here:
    """A machine with GPUs, and one life of a process on it.

    Attributes:
        supervisor: that process, of which only the watch is real.
    """

    world: World
    gate: Gate
    supervisor: SimProcess
    ports_gpus: GatedGpus

    def kill(self) -> None:
        self.world.table.signal(self.supervisor, 9)
        self.gate.close()


def play(scenario, *, faults=(), seed=0):
    """Play a scenario in virtual time; returns the world as it is then."""
    world = World(seed=seed, faults=faults, machine=FOUR)

    async def main():
        async with world.open():
            supervisor = world.table.spawn(("supervisor",), parent=1, is_subreaper=True)
            gate = Gate(incarnation=1, ledger=world.ledger, plan=world.plan, kill=lambda: None)
            gpus = GatedGpus(gate, SimGpus(world.gpus, world.table, parent=supervisor.pid))
            await scenario(Here(world, gate, supervisor, gpus))

    run_in_virtual_time(main, seed=seed)
    return world


@asynccontextmanager
async def watching(here, **settings):
    async with trio.open_nursery() as tasks:
        watch = GpuWatch(here.ports_gpus, DriverPlaces(), **settings)
        tasks.start_soon(watch.run)
        yield watch
        tasks.cancel_scope.cancel()


async def until(watch, condition, *, within_s=LONG_S):
    with trio.fail_after(within_s):
        while not condition(watch.view):
            await watch.changed(watch.view)


def answers(view):
    return isinstance(view, NvmlAnswers)


def fails(view):
    return isinstance(view, NvmlFails)


def losses(view):
    return {gpu.minor: gpu.lost for gpu in view.inventory.gpus if gpu.lost is not None}


def monitors(world):
    return [process for process in world.table if process.arguments == COMMAND_LINE]


def test_a_watch_that_nobody_asks_calls_nothing_and_sets_no_timer():
    async def scenario(here):
        async with watching(here) as watch:
            await trio.sleep(LONG_S)
            assert fails(watch.view)

    assert play(scenario).ledger.calls == []


FAULTS = [
    ("monitor", Fail("ENOENT")),
    ("monitor", Fail("EAGAIN")),
    ("monitor", Fail("EMFILE")),
    ("monitor", Hang()),
    ("monitor", Slow(10.0)),
    ("receive", Fail("EIO")),
    ("receive", Hang()),
    ("receive", Slow(10.0)),
    ("receive", Slow(SILENCE_S + 1)),
    *(("receive", Lie(how)) for how in LIES["gpus", "receive"]),
]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(("method", "what"), FAULTS, ids=str)
def test_whatever_happens_to_a_call_nvml_answers_again_and_one_monitor_runs(method, what, nth):
    if method == "monitor" and nth > 1:
        fault = Fault(id="f", when=When(port="gpus", method=method, times_max=nth), what=what)
    else:
        fault = Fault(id="f", when=When(port="gpus", method=method, nth=nth), what=what)

    async def scenario(here):
        async with watching(here) as watch:
            watch.ask_for_facts()
            await trio.sleep(LONG_S)
            assert answers(watch.view)
            assert len(watch.view.inventory.usable) == 4
            assert len(monitors(here.world)) == 1
        assert monitors(here.world) == []

    (report,) = play(scenario, faults=[fault]).plan.reports()
    assert report.fired


@pytest.mark.parametrize(
    "symbol", [Symbol.INIT, Symbol.COUNT, Symbol.UUID, Symbol.REGISTER_EVENTS, Symbol.EVENT_SET_WAIT]
)
@pytest.mark.parametrize("trouble", Trouble)
def test_nvml_that_hangs_or_crashes_is_a_reason_that_clears_by_itself(symbol, trouble):
    async def scenario(here):
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            assert answers(watch.view)
            fault = here.world.gpus.spoil(symbol, trouble)
            here.world.gpus.remove_node("nvidia7")  # a session more, in which every function is called
            await until(watch, fails, within_s=2 * SILENCE_S)
            assert len(watch.view.last.inventory.gpus) == 4
            await trio.sleep(LONG_S)
            here.world.gpus.heal(fault)
            await until(watch, answers, within_s=LONGEST_DELAY_S + FIRST_WORD_S + 1)
            await trio.sleep(LONG_S)
            assert answers(watch.view)

    assert play(scenario).now_s() > LONG_S


def test_a_monitor_that_crashes_for_ever_is_started_ever_more_rarely_but_at_least_every_30_seconds():
    async def scenario(here):
        here.world.gpus.spoil(Symbol.INIT, Trouble.CRASH)
        async with watching(here) as watch:
            watch.ask_for_facts()
            await trio.sleep(LONG_S)

    started = [call.at_s for call in play(scenario).ledger.calls if call.method == "monitor"]
    gaps = [round(after - before) for before, after in pairwise(started)]
    assert gaps[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert set(gaps[5:]) == {30}


def test_after_a_long_good_life_the_next_one_is_started_soon():
    async def scenario(here):
        async with watching(here) as watch:
            watch.ask_for_facts()
            for _ in range(4):
                await until(watch, answers)
                await trio.sleep(LONG_S)
                (monitor,) = monitors(here.world)
                here.world.table.signal(monitor, 9)
                await until(watch, fails, within_s=1)
                await until(watch, answers, within_s=2)

    assert play(scenario).now_s() > 4 * LONG_S


def test_case_041_the_gpu_that_fell_off_is_out_at_once_and_back_when_it_answers():
    heard = {}

    async def scenario(here):
        gpus = here.world.gpus
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            gpus.report(2, 94)
            gpus.lose(5)
            await until(watch, losses, within_s=0.1)
            assert losses(watch.view) == {5: "XID 79"}
            await trio.sleep(10 * HEARTBEAT_S)
            assert losses(watch.view) == {5: "XID 79"}
            gpus.recover(5)
            gpus.report(2, 13)
            gpus.report(7, 999)
            await until(watch, lambda view: not losses(view), within_s=HEARTBEAT_S + 1)
            for gpu in watch.view.inventory.gpus:
                heard[gpu.minor] = [each["xid"] for each in watch.xids.as_json(gpu.uuid)]

    play(scenario)
    assert {minor: xids for minor, xids in heard.items() if xids} == {2: [94, 13], 5: [79], 7: [999]}


def test_a_fatal_xid_is_not_for_ever_where_a_reset_was_not_seen():
    async def scenario(here):
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            here.world.gpus.report(2, 48)
            await trio.sleep((REST_LOOKS - 1) * HEARTBEAT_S)
            assert losses(watch.view) == {2: "XID 48"}
            await until(watch, lambda view: not losses(view), within_s=3 * HEARTBEAT_S)

    assert play(scenario).now_s() >= REST_LOOKS * HEARTBEAT_S


def test_a_gpu_whose_node_is_gone_is_lost_and_not_forgotten():
    async def scenario(here):
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            here.world.gpus.remove_node("nvidia7")
            await until(watch, losses, within_s=HEARTBEAT_S + 1)
            assert losses(watch.view) == {7: "no longer seen"}
            here.world.gpus.make_nodes(7)
            await until(watch, lambda view: not losses(view), within_s=HEARTBEAT_S + 1)

    assert play(scenario).now_s() > 0


def test_case_009_an_upgrade_names_both_versions_and_clears_when_the_module_is_loaded():
    async def scenario(here):
        gpus = here.world.gpus
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            gpus.upgrade_driver("590.48.01")
            await trio.sleep(LONG_S)
            assert answers(watch.view)  # who has the old library goes on with it
            here.world.table.signal(monitors(here.world)[0], 9)
            await until(watch, lambda view: "LIB_RM" in getattr(view, "why", ""))
            assert "the libraries are of 590.48.01, the loaded module is 580.65.06" in watch.view.why
            await trio.sleep(LONG_S)
            assert "LIB_RM_VERSION_MISMATCH" in watch.view.why
            gpus.reload_driver()
            await until(watch, answers, within_s=5 * HEARTBEAT_S)
            assert watch.view.driver == "590.48.01"

    assert play(scenario).now_s() > LONG_S


def test_the_new_module_under_the_old_library_is_found_by_another_monitor():
    async def scenario(here):
        gpus = here.world.gpus
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            gpus.upgrade_driver("590.48.01")
            gpus.reload_driver()
            await until(watch, fails, within_s=HEARTBEAT_S + 1)
            await until(watch, answers, within_s=3)
            assert watch.view.driver == "590.48.01"

    assert play(scenario).now_s() > 0


def test_nvml_is_initialised_again_ever_more_rarely_while_a_gpu_is_lost():
    counted = []

    async def scenario(here):
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            here.world.gpus.lose(5)
            fault = here.world.gpus.spoil(Symbol.EVENT_SET_CREATE, Return.NOT_SUPPORTED)
            await trio.sleep(LONG_S)
            counted.append(fault.fired)

    play(scenario)
    looks = LONG_S / HEARTBEAT_S
    # Each new session tries to listen once for each of the three GPUs that answer.
    assert 3 * looks / 5 <= counted[0] <= 3 * (looks / 4 + 3)


def test_the_end_of_the_supervisor_is_the_end_of_its_monitor():
    async def scenario(here):
        watch = GpuWatch(here.ports_gpus, DriverPlaces())

        async def watch_to_the_end():
            with pytest.raises(FencedError):
                await watch.run()

        async with trio.open_nursery() as tasks:
            tasks.start_soon(watch_to_the_end)
            await watch.first_word(LONG_S)
            assert len(monitors(here.world)) == 1
            here.kill()
            assert monitors(here.world) == []

    assert play(scenario).ledger.calls[-1].method == "receive"


def test_the_same_seed_is_the_same_run():
    async def scenario(here):
        async with watching(here) as watch:
            await watch.first_word(LONG_S)
            here.world.gpus.lose(5)
            await trio.sleep(LONG_S)

    assert play(scenario, seed=3).ledger.calls == play(scenario, seed=3).ledger.calls


def test_a_start_of_a_monitor_is_where_a_crash_makes_a_difference():
    assert ("gpus", "monitor") in CHANGING
    assert ("gpus", "receive") not in CHANGING
