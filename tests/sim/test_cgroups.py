"""Cgroups in the simulated world: every process in its leaf, no leaf left, and stats that tell what was measured."""

from typing import Any

import pytest
import trio

from actors.ports import CgroupLimits
from sim.documents import actor, container, counter, idler
from sim.engine import record_of, run
from sim.faults import Fail, Fault, Kill, Lie, Slow, When
from sim.invariants.registry import check
from sim.lives import LIVES
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.settings import CgroupsWanted

NUMBERS = ("cpu_usec", "memory_bytes", "memoryPeak_bytes", "workingSet_bytes", "oomKills", "processes")
LIMITED: Any = {"resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}}


def cgroups(here):
    return dict(here.world.cgroups.cgroups)


def leaves(here):
    """The leaf of each process that is in one, by its program."""
    return sorted((each.arguments[0], each.cgroup.partition("/")[2]) for each in here.world.table if each.cgroup)


async def usage(here, uid="a1"):
    found: dict[str, object] = (await here.ask("status", uid=uid))["usage"]
    return found


def is_unmeasured(found):
    return found["source"] == "Unspecified" and bool(found["why"]) and all(found[name] is None for name in NUMBERS)


# ---- a life


def test_every_process_is_in_its_leaf_and_each_activation_has_a_cgroup_of_its_own():
    async def scenario(here):
        await here.submit(actor("a1", container("web", **LIMITED), container("log", **LIMITED)))
        await here.reach(State.RUNNING)
        gofers = [("runsc-gofer", leaf) for leaf in ("c-log", "c-web", "sandbox")]
        assert leaves(here) == [*gofers, ("runsc-sandbox", "sandbox")]
        ((first, made),) = cgroups(here).items()
        assert first.startswith("a1.")
        limits = made.limits
        assert (limits.cpu_quota_usec, limits.cpu_weight, limits.memory_bytes) == (100_000, 50, 128 << 20)
        await here.suspend()
        assert cgroups(here) == {}
        await here.resume()
        ((second, _),) = cgroups(here).items()
        assert second != first
        await here.stop()
        assert cgroups(here) == {}

    run(scenario)


def test_what_a_worker_that_was_killed_left_is_swept_and_a_survivor_keeps_its_own():
    async def scenario(here):
        await here.submit(counter("a1"))
        await here.reach(State.RUNNING)
        survivor = cgroups(here)
        here.world.cgroups.make("a2.gone", ("sandbox",), CgroupLimits())
        await here.restart()
        await here.reach(State.RUNNING)
        assert cgroups(here) == survivor
        assert (await usage(here))["source"] == "Cgroup"

    run(scenario)


def test_one_of_an_earlier_activation_is_found_while_the_actor_runs_again():
    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.RUNNING)
        (earlier,) = cgroups(here)
        await here.suspend()
        await here.resume()
        await trio.sleep(60)
        assert check(here.world, record_of(here.world)) == ()
        here.world.cgroups.make(earlier, ("sandbox",), CgroupLimits())
        (violation,) = check(here.world, record_of(here.world))
        assert (violation.name, earlier in str(violation)) == ("CgroupsHoldTheirActors", True)
        here.world.cgroups.cgroups.pop(earlier)

    run(scenario)


async def ask_in_vain(here):
    """Until the worker is killed on the way."""
    try:
        await here.submit(counter())
        await here.reach(State.SUSPENDED)
    except ProblemError:
        await trio.sleep_forever()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["make", "remove"])
def test_a_worker_that_is_killed_at_the_call_leaves_nothing_that_the_next_does_not_find(method, after):
    async def scenario(here):
        here.plant(Fault(id="kill", when=When(port="cgroups", method=method), what=Kill(after=after)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_in_vain, here)
            await here.worker.ended.wait()
            nursery.cancel_scope.cancel()
        await here.start()
        await trio.sleep(60)
        assert check(here.world, record_of(here.world)) == ()

    assert all(report.fired for report in run(scenario).faults)


def test_a_cgroup_that_cannot_be_made_fails_the_start_and_leaves_nothing():
    async def scenario(here):
        here.plant(Fault(id="full", when=When(port="cgroups", method="make", nth=1), what=Fail("ENOSPC")))
        await here.submit(counter())
        await here.wait(State.FAILED)
        error = (await here.ask("status", uid="a1"))["error"]
        assert (error["step"], error["reason"]) == ("create", "CgroupUnavailable")
        assert "No space left on device" in error["message"]
        assert cgroups(here) == {}
        await here.resume()
        assert len(cgroups(here)) == 1

    run(scenario)


def test_a_command_that_cannot_enter_its_leaf_does_not_run_outside_of_it():
    async def scenario(here):
        here.plant(Fault(id="lie", when=When(port="cgroups", method="make", nth=1), what=Lie("notDone")))
        await here.submit(counter())
        await here.wait(State.FAILED)
        assert (await here.ask("status", uid="a1"))["error"]["reason"] == "CgroupUnavailable"
        assert here.left() == []

    run(scenario)


def test_a_cgroup_that_cannot_be_removed_is_tried_again_and_then_gone():
    async def scenario(here):
        here.plant(Fault(id="busy", when=When(port="cgroups", method="remove", nth=1), what=Fail("EBUSY")))
        await here.submit(counter())
        await here.reach(State.RUNNING)
        await here.suspend()
        await trio.sleep(60)
        assert cgroups(here) == {}

    assert all(report.fired for report in run(scenario).faults)


@pytest.mark.parametrize("name", ["run-stop", "failed-start", "ends-by-itself", "backing-off", "durable-volumes"])
def test_no_life_leaves_a_cgroup_behind(name):
    life = LIVES[name]

    async def scenario(here):
        await life.play(here)
        await trio.sleep(100)
        assert check(here.world, record_of(here.world)) == ()
        running = {uid for uid, state in here.world.hearing.states.items() if state == "Running"}
        assert {each.partition(".")[0] for each in cgroups(here)} == running

    run(scenario, machine=life.machine)


# ---- without


@pytest.mark.parametrize(
    ("machine", "settings", "message"),
    [
        (Machine(no_cgroups="/sys/fs/cgroup is no cgroup v2"), {}, "/sys/fs/cgroup is no cgroup v2"),
        (Machine(), {"cgroups": CgroupsWanted.OFF}, "none are wanted"),
    ],
)
def test_without_a_cgroup_everything_works_and_the_worker_says_that_nothing_is_enforced(machine, settings, message):
    async def scenario(here):
        await here.restart(**settings)
        told = (await here.ask("status"))["worker"]["cgroups"]
        assert (told["mode"], told["controllers"], told["message"]) == ("off", [], message)
        await here.submit(counter())
        await here.reach(State.RUNNING)
        assert is_unmeasured(await usage(here))
        await here.suspend()
        await here.resume()
        await here.stop()
        assert cgroups(here) == {}

    run(scenario, machine=machine)


def test_it_is_said_once_and_not_by_each_actor():
    async def scenario(here):
        for uid in ("a1", "a2", "a3"):
            await here.submit(counter(uid))
            await here.wait(State.RUNNING, uid)

    record = run(scenario, machine=Machine(no_cgroups="it is v1"))
    said = [each for each in record.log if each.event == "cgroups"]
    assert [each.fields["message"] for each in said] == ["it is v1"]


# ---- case 040: stats answers and capacity during transitions


SLOW_START_S, SLOW_END_S, SAVE_S = 20.0, 3.0, 60.0


async def refusal(here, document):
    try:
        await here.submit(document)
    except ProblemError as error:
        return error.problem.reason
    return None


def test_stats_are_samples_or_not_measured_and_a_place_is_free_once_the_cleanup_is_done():
    """Case 040: u1 runs, u2 starts and is stopped again, u3 wants a place, u9 is nobody."""

    async def scenario(here):
        await here.restart(max_actors=2)
        await here.submit(idler("u1"))
        await here.wait(State.RUNNING, "u1")
        here.plant(Fault(id="start", when=When(port="cgroups", method="make"), what=Slow(SLOW_START_S)))
        here.plant(Fault(id="end", when=When(port="cgroups", method="remove"), what=Slow(SLOW_END_S)))
        await here.submit(counter("u2"))
        await trio.sleep(1)
        # u2 is being started, and has no cgroup yet.
        assert (await usage(here, "u1"))["processes"] == 3
        assert is_unmeasured(await usage(here, "u2"))
        with pytest.raises(ProblemError) as unknown:
            await usage(here, "u9")
        assert unknown.value.problem.reason is Reason.ACTOR_NOT_FOUND
        listed = {each["uid"]: each["usage"]["source"] for each in (await here.ask("status"))["actors"]}
        assert listed == {"u1": "Cgroup", "u2": "Unspecified"}
        assert await refusal(here, counter("u3")) is Reason.WORKER_FULL
        # It is stopped, and its cleanup takes a while.
        await here.ask("stop", uid="u2")
        await trio.sleep(1)
        assert await refusal(here, counter("u3")) is Reason.WORKER_FULL
        await here.wait(State.TERMINATED, "u2")
        assert await refusal(here, counter("u3")) is None
        assert await refusal(here, idler("u1")) is None  # it is here already, and keeps its place
        await here.wait(State.RUNNING, "u3")
        assert await refusal(here, counter("u4")) is Reason.WORKER_FULL

    run(scenario)


def test_an_error_of_one_actors_files_is_that_actors_alone():
    """Case 040: one leaf gives EIO."""

    async def scenario(here):
        for uid in ("u1", "u2"):
            await here.submit(idler(uid))
            await here.wait(State.RUNNING, uid)
        here.plant(Fault(id="eio", when=When(port="cgroups", method="usage", argument=r"^u1\."), what=Fail("EIO")))
        found = {each["uid"]: each["usage"] for each in (await here.ask("status"))["actors"]}
        assert is_unmeasured(found["u1"])
        assert "Input/output error" in found["u1"]["why"]
        assert found["u2"]["source"] == "Cgroup"

    run(scenario)


def test_a_poll_waits_for_no_operation():
    """Case 040: a save takes a minute, and stats answer at once."""

    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.RUNNING)
        save = When(port="processes", method="run", argument=" checkpoint ")
        here.plant(Fault(id="save", when=save, what=Slow(SAVE_S)))
        await here.ask("suspend", uid="a1")
        for _ in range(20):
            await trio.sleep(1)
            before = trio.current_time()
            assert (await usage(here))["source"] == "Cgroup"
            assert (await here.ask("status", uid="a1"))["state"] == "Suspending"
            assert trio.current_time() - before < 0.05  # of virtual time, in which nothing is busy

    run(scenario)


def test_numbers_of_an_activation_that_ends_while_they_are_read_are_not_told_as_those_of_the_next():
    """Case 040: u1 is recycled during a read."""

    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.RUNNING)
        here.plant(Fault(id="slow", when=When(port="cgroups", method="usage", nth=1), what=Slow(30.0)))
        found = []

        async def read():
            found.append(await usage(here))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(1)
            await here.suspend()
            await here.resume()
        assert is_unmeasured(found[0])
        assert (await usage(here))["source"] == "Cgroup"

    run(scenario)


def test_what_was_ended_for_its_memory_is_counted_until_the_sandbox_is_torn_down():
    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.RUNNING)
        (name,) = cgroups(here)
        here.world.cgroups.cgroups[name].oom_kills = 2
        assert (await usage(here))["oomKills"] == 2
        here.world.cgroups.run_out_of_memory(name)
        await here.wait(State.FAILED)
        assert is_unmeasured(await usage(here))

    run(scenario)
