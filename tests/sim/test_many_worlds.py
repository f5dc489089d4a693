"""Several simulated machines in one virtual time, and what a machine of a fleet may leave out."""

import math
import signal
from contextlib import AsyncExitStack

import attrs
import pytest
import trio

from sim.documents import actor, counter, idler
from sim.engine import JumpingClock, run, run_in_virtual_time
from sim.guard import guarded
from sim.hearing import Hearing
from sim.lives import claiming
from sim.scenario import Stage
from sim.world.gpu_monitor import COMMAND_LINE
from sim.world.gpus import Driver, some_gpus
from sim.world.runsc.settings import INSTANT
from sim.world.stores import SimObjects
from sim.world.world import Machine, World, default_settings
from statemachine.states import State
from tests.sim.storing import TO_STORE, stored_at

GPUS = Machine(gpus=some_gpus(2), driver=Driver(version="550.90.07"))


async def _side_by_side(worlds, scenario):
    with guarded(), Hearing(keeps=False).open():
        async with AsyncExitStack() as stack:
            for world in worlds:
                await stack.enter_async_context(world.passing())
            stages = [Stage(world) for world in worlds]
            for stage in stages:
                await stage.start()
            await scenario(*stages)


def side_by_side(*worlds):
    def decorate(scenario):
        run_in_virtual_time(lambda: _side_by_side(worlds, scenario), seed=1)

    return decorate


def test_what_is_said_on_one_machine_is_heard_there_alone():
    @side_by_side(World(seed=1), World(seed=2))
    async def _(one, other):
        await one.submit(idler("a1"))
        await other.submit(idler("b1"))
        await one.wait(State.RUNNING, "a1")
        await other.wait(State.RUNNING, "b1")
        assert {move.actor for move in one.world.hearing.moves} == {"a1"}
        assert {move.actor for move in other.world.hearing.moves} == {"b1"}
        one.kill()
        assert other.world.worker.lives


def test_a_machine_that_goes_leaves_the_others_as_they_are():
    async def scenario():
        with guarded(), Hearing(keeps=False).open():
            async with World(seed=1).passing() as world:
                stays = Stage(world)
                async with World(seed=2).passing() as other:
                    await stays.start()
                    await Stage(other).start()
                await stays.submit(idler())
                await stays.wait(State.RUNNING)
                assert stays.state() == "Running"

    run_in_virtual_time(scenario, seed=1)


def test_machines_that_share_a_store_hand_an_actor_on():
    objects = SimObjects()

    @side_by_side(World(seed=1, objects=objects), World(seed=2, objects=objects))
    async def _(one, other):
        await one.submit(counter(**TO_STORE))
        await one.wait(State.RUNNING)
        await trio.sleep(1)
        await one.suspend()
        uri = await stored_at(one)
        await other.submit(counter(generation=2, snapshot={"uri": uri}))
        await other.wait(State.RUNNING)
        await trio.sleep(1)
        assert int(other.output()[0]) == len(one.output())


def test_a_machine_that_keeps_no_history_tells_it_as_it_happens():
    told = []
    world = World(machine=Machine(keeps_history=False))
    world.hearing.listeners.append(lambda said, moved: told.append((said.event, moved)))

    @side_by_side(world)
    async def _(here):
        await here.submit(idler())
        await here.wait(State.RUNNING)
        assert (world.hearing.said, world.hearing.moves, world.execution.given) == ([], [], [])
        assert here.state() == "Running"

    assert [moved.after for event, moved in told if moved is not None][-1] == "Running"
    assert all(moved is None for event, moved in told if event != "transition")


def test_each_command_of_runsc_is_as_fast_as_its_pace_says():
    verbs = []

    def pace(argv):
        verbs.extend([word for word in argv[1:] if not word.startswith("-")][:1])
        return attrs.evolve(INSTANT, create_root_s=7.0)

    async def scenario(here):
        began_s = trio.current_time()
        await here.submit(idler())
        await here.wait(State.RUNNING)
        assert trio.current_time() - began_s == pytest.approx(7.0)

    run(scenario, machine=Machine(pace=pace))
    assert {"create", "start", "state"} <= set(verbs)


def test_every_request_to_a_store_waits_for_what_carries_it():
    carried = []

    async def carry(key, path, size_bytes):
        carried.append((key, path, size_bytes))
        await trio.sleep(2.0)

    async def scenario(here):
        await here.submit(counter(**TO_STORE))
        await here.wait(State.RUNNING)
        await here.suspend()
        began_s = trio.current_time()
        await stored_at(here)
        assert trio.current_time() - began_s >= 2.0 * 5
        parts = [(path.name, size_bytes) for _, path, size_bytes in carried if path is not None]
        assert "checkpoint.img" in {name for name, _ in parts}
        assert all(size_bytes > 0 for _, size_bytes in parts)

    run(scenario, machine=Machine(carry=carry))


def test_a_request_that_takes_longer_than_it_may_is_an_error_of_the_store():
    async def carry(_key, _path, _size_bytes):
        await trio.sleep_forever()

    async def scenario(here):
        await here.submit(counter(**TO_STORE))
        await here.wait(State.RUNNING)
        await here.suspend()
        await trio.sleep(1000)
        assert (await here.status())["error"]["reason"] == "SnapshotNotUploaded"

    run(scenario, machine=Machine(carry=carry))


# ---- a monitor that says nothing while nothing happens


def looks(here):
    return len([call for call in here.world.ledger.calls if call.method == "receive" and call.port == "gpus"])


def quiet(scenario, *, tells_for_s=600.0, silence_s=math.inf):
    settings = attrs.evolve(default_settings(), gpu_silence_s=silence_s)
    machine = attrs.evolve(GPUS, monitor_tells_for_s=tells_for_s)
    return run(scenario, machine=machine, settings=settings, limit_s=1e6)


async def _holding(here):
    await here.submit(actor("a1", claiming("main", 1)))
    await here.wait(State.RUNNING)


def test_a_quiet_monitor_is_not_replaced_and_looks_no_more():
    async def scenario(here):
        await _holding(here)
        before = looks(here)
        await trio.sleep(24 * 3600)
        assert looks(here) - before <= 1
        assert [said for said in here.world.hearing.said if said.event == "gpu_monitor_replaced"] == []

    quiet(scenario)


def test_a_supervisor_that_was_not_told_so_replaces_a_quiet_monitor():
    async def scenario(here):
        await _holding(here)
        await trio.sleep(100)
        assert [said for said in here.world.hearing.said if said.event == "gpu_monitor_replaced"]

    quiet(scenario, silence_s=20.0)


@pytest.mark.parametrize("waits_s", [1.0, 24 * 3600.0])
def test_what_happens_to_a_gpu_wakes_a_quiet_monitor_for_a_while(waits_s):
    async def scenario(here):
        await _holding(here)
        await trio.sleep(waits_s)
        before = looks(here)
        (free,) = [each["minor"] for each in (await here.ask("status"))["worker"]["gpus"] if each["holder"] is None]
        here.world.gpus.remove_node(f"nvidia{free}")
        await trio.sleep(3600)
        assert 3600 / 3 > looks(here) - before >= 600 / 3 - 2
        assert (await here.status())["state"] == "Running"

    quiet(scenario)


def test_a_gpu_that_comes_back_to_a_quiet_monitor_is_granted_again():
    async def scenario(here):
        await _holding(here)
        await trio.sleep(24 * 3600)
        for gpu in here.world.gpus.visible():
            here.world.gpus.lose(gpu.minor)
        await here.until(State.FAILED)
        await trio.sleep(3600)
        for gpu in here.world.gpus.visible():
            here.world.gpus.recover(gpu.minor)
        await trio.sleep(3600)
        await here.resume()
        assert here.state() == "Running"

    quiet(scenario)


def test_a_monitor_that_takes_the_place_of_another_sees_how_a_gpu_gets_well():
    async def scenario(here):
        await _holding(here)
        await trio.sleep(24 * 3600)
        (free,) = [each["minor"] for each in (await here.ask("status"))["worker"]["gpus"] if each["holder"] is None]
        here.world.gpus.report(free, 74)
        await trio.sleep(1)
        assert [each["withheld"] for each in (await here.ask("status"))["worker"]["gpus"]].count(None) == 1
        for each in [each for each in here.world.table if each.arguments == COMMAND_LINE]:
            here.world.table.signal(each, signal.SIGKILL)
        await trio.sleep(400)
        assert [each["withheld"] for each in (await here.ask("status"))["worker"]["gpus"]] == [None, None]

    quiet(scenario)


def test_a_clock_tells_when_nothing_can_happen_any_more():
    scopes = [trio.CancelScope()]

    async def scenario():
        with scopes[0]:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(trio.sleep, 5.0)
                tasks.start_soon(trio.sleep_forever)
        return trio.current_time()

    clock = JumpingClock(scopes[0].cancel)
    assert run_in_virtual_time(scenario, seed=1, clock=clock) == 5.0
