"""The drain of a worker: who is suspended, who is stopped, and what happens when the time is over."""

import math
from contextlib import asynccontextmanager

import anyio
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import draining, operations
from supervisor.draining import SUSPENDS_MAX, Present, drain
from supervisor.left import left_by
from supervisor.shutdown import Phase, Shutdown
from tests.fakes.performer import a_problem
from tests.supervisor.lives import settled
from tests.supervisor.stands import DRAIN_S, a_stand, nothing_inside

pytestmark = pytest.mark.anyio

CROWD = [f"a{number}" for number in range(SUSPENDS_MAX + 3)]


async def crowd(stand, uids=CROWD, **changes):
    """Running actors; returns the holds at which their suspends wait."""
    for uid in uids:
        await stand.running(uid, **changes)
    return {uid: stand.performers[uid].hold(c.SaveSnapshot) for uid in uids}


def states(stand):
    return {life.uid: life.actor.state for life in stand.worker.lives}


class Steered(Shutdown):
    """The time of a phase is over when the test says so."""

    def __init__(self):
        super().__init__(DRAIN_S)
        self._over = set()

    def end(self, phase):
        self._over.add(phase)
        for scope, at in self._bounded.items():
            scope.deadline = at()

    def _end_of(self, phase):
        return -math.inf if phase in self._over else math.inf


class Draining:
    """A drain that goes on beside the test, whose phases it ends; `came` is what came of it."""

    def __init__(self, stand, commands_end):
        self.stand, self.came, self.shutdown, self._commands_end = stand, None, Steered(), commands_end
        stand.worker.shutdown = self.shutdown

    @classmethod
    @asynccontextmanager
    async def of(cls, stand, commands_end=None):
        draining = cls(stand, commands_end)
        async with anyio.create_task_group() as group:
            group.start_soon(draining._drain)
            yield draining

    async def _drain(self):
        self.came = await self.stand.drain(self._commands_end)


def begun(holds):
    return {uid for uid, hold in holds.items() if hold.begun.is_set()}


async def test_running_actors_are_suspended_some_at_a_time():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand, anyio.create_task_group() as group:
        holds = await crowd(stand)
        group.start_soon(stand.drain)
        await settled()
        assert len(begun(holds)) == SUSPENDS_MAX
        holds[min(begun(holds))].let_go()
        await settled()
        assert len(begun(holds)) == SUSPENDS_MAX + 1
        for hold in holds.values():
            hold.let_go()
    assert set(states(stand).values()) == {State.SUSPENDED}


async def test_what_does_not_run_waits_for_no_turn():
    """Starts are rolled back, and what is being suspended is finished, however many are suspended first."""
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand, anyio.create_task_group() as group:
        holds = await crowd(stand)
        stand.prepare["starting"] = lambda performer: performer.hold(c.CreateSandbox)
        await stand.submit("starting")
        await stand.until(State.CREATING, uid="starting")
        await stand.running("suspending")
        saving = stand.performers["suspending"].hold(c.SaveSnapshot)
        await operations.suspend(stand.worker, "suspending")
        await saving.begun.wait()
        group.start_soon(stand.drain)
        await stand.until(State.FAILED, uid="starting")
        assert stand.life("starting").actor.problem.reason is Reason.WORKER_DRAINING
        saving.let_go()
        await stand.until(State.SUSPENDED, uid="suspending")
        assert len(begun(holds)) == SUSPENDS_MAX
        for hold in holds.values():
            hold.let_go()


class Inside:
    """Commands of clients inside some actors, until the test ends them."""

    def __init__(self, *uids):
        self._ended = {uid: anyio.Event() for uid in uids}

    async def ended(self, uid):
        if uid in self._ended:
            await self._ended[uid].wait()

    def end(self):
        for ended in self._ended.values():
            ended.set()


async def test_a_command_inside_keeps_only_its_own_actor_from_its_suspend():
    """However many have one: a start is rolled back and another actor is suspended, as if there were none."""
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        for uid in (*CROWD, "other"):
            await stand.running(uid)
        stand.prepare["starting"] = lambda performer: performer.hold(c.CreateSandbox)
        await stand.submit("starting")
        await stand.until(State.CREATING, uid="starting")
        inside = Inside(*CROWD)
        async with Draining.of(stand, inside.ended) as drain:
            await stand.until(State.FAILED, uid="starting")
            await stand.until(State.SUSPENDED, uid="other")
            assert {states(stand)[uid] for uid in CROWD} == {State.RUNNING}
            inside.end()
        assert {states(stand)[uid] for uid in CROWD} == {State.SUSPENDED}
        assert drain.came.late == ()


async def test_whose_command_hangs_until_the_time_for_suspends_is_over_is_stopped():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        await stand.running()
        await stand.running("other")
        async with Draining.of(stand, Inside("a1").ended) as drain:
            await stand.until(State.SUSPENDED, uid="other")
            drain.shutdown.end(Phase.SAVING)
        assert states(stand) == {"a1": State.TERMINATED, "other": State.SUSPENDED}
        assert drain.came.late == ("a1",)


async def test_whose_actor_ends_while_its_command_is_waited_for_waits_no_longer():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        await stand.running()
        async with Draining.of(stand, Inside("a1").ended) as drain:
            await settled()
            await stand.performers["a1"].feed(e.ContainerExited(container="main", exit_code=3))
        assert states(stand) == {"a1": State.FAILED}
        assert drain.came.late == ()


async def test_whoever_waits_for_a_turn_and_fails_is_not_started_again():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand, anyio.create_task_group() as group:
        holds = await crowd(stand, spec__restartPolicy="OnFailure")
        group.start_soon(stand.drain)
        await settled()
        waiting = min(set(CROWD) - begun(holds))
        await stand.performers[waiting].feed(e.ContainerExited(container="main", exit_code=3))
        await stand.until(State.FAILED, uid=waiting)
        assert stand.performers[waiting].story.count("CreateSandbox") == 1
        for hold in holds.values():
            hold.let_go()


async def test_whoever_waits_for_a_turn_may_be_suspended_by_command_meanwhile():
    """Case 023: a suspend is accepted while the worker drains, and completes."""
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand, anyio.create_task_group() as group:
        holds = await crowd(stand)
        group.start_soon(stand.drain)
        await settled()
        waiting = min(set(CROWD) - begun(holds))
        await operations.suspend(stand.worker, waiting)
        holds[waiting].let_go()
        await stand.until(State.SUSPENDED, uid=waiting)
        assert len(begun(holds)) == SUSPENDS_MAX + 1, "beside those who have their turns"
        for hold in holds.values():
            hold.let_go()


async def test_an_actor_that_cannot_be_suspended_is_stopped_and_the_reason_is_told():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        await stand.running()
        refusal = a_problem(Reason.LIVE_CUDA_CONTEXT)
        stand.performers["a1"].answers[c.SaveSnapshot] = e.SuspendRefused(problem=refusal)
        drained = await stand.drain()
        actor = stand.life().actor
        assert actor.state is State.TERMINATED
        assert actor.problem.reason is Reason.LIVE_CUDA_CONTEXT
        assert "stopped" in actor.problem.message
        assert refusal.message in actor.problem.message
        assert stand.status()["error"]["reason"] == "LiveCudaContext"
        assert (drained.late, drained.killed) == ((), ())
        assert left_by(stand.worker, drained, ()).problems == ()


async def test_a_worker_that_was_told_to_stops_all_at_once_and_suspends_nobody():
    async with a_stand(on_drain=OnDrain.STOP) as stand:
        holds = await crowd(stand)
        drained = await stand.drain()
        assert begun(holds) == set()
        assert set(states(stand).values()) == {State.TERMINATED}
        assert {life.actor.problem.reason for life in stand.worker.lives} == {Reason.WORKER_DRAINING}
        assert drained.found == set(CROWD)


@pytest.mark.parametrize("on_drain", [OnDrain.SUSPEND, OnDrain.STOP])
async def test_whose_suspend_does_not_end_in_time_is_stopped_and_that_is_told(logs, on_drain):
    async with a_stand(on_drain=on_drain) as stand:
        await stand.running("done")
        await operations.suspend(stand.worker, "done")
        await stand.until(State.SUSPENDED, uid="done")
        holds = await crowd(stand, ["a1"])
        if on_drain is OnDrain.STOP:
            await operations.suspend(stand.worker, "a1")
            await holds["a1"].begun.wait()
        async with Draining.of(stand) as drain:
            await holds["a1"].begun.wait()
            drain.shutdown.end(Phase.SAVING)
        assert states(stand) == {"a1": State.TERMINATED, "done": State.SUSPENDED}
        assert holds["a1"].cancelled.is_set()
        assert stand.life("a1").actor.problem.reason is Reason.WORKER_DRAINING
        assert "the time for suspends was over" in stand.life("a1").actor.problem.message
        assert (drain.came.late, drain.came.killed) == (("a1",), ())
        (stopping,) = [entry for entry in logs if entry["event"] == "stopping"]
        assert stopping["left"] == ("a1",)
        (problem,) = left_by(stand.worker, drain.came, ()).problems
        assert problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        assert "a1 had to be stopped" in problem.message


async def test_whoever_has_no_turn_before_the_time_is_over_is_stopped():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        holds = await crowd(stand)
        async with Draining.of(stand) as drain:
            await settled()
            assert len(begun(holds)) == SUSPENDS_MAX
            drain.shutdown.end(Phase.SAVING)
        assert len(begun(holds)) == SUSPENDS_MAX
        assert set(states(stand).values()) == {State.TERMINATED}
        assert sorted(drain.came.late) == CROWD


async def test_who_is_being_ended_when_the_time_for_suspends_is_over_is_not_late():
    async with a_stand(on_drain=OnDrain.STOP) as stand:
        await stand.running()
        hold = stand.performers["a1"].hold(c.StopContainers)
        async with Draining.of(stand) as drain:
            await hold.begun.wait()
            drain.shutdown.end(Phase.SAVING)
            await settled()
            assert not hold.cancelled.is_set()
            hold.let_go()
        assert left_by(stand.worker, drain.came, ()).problems == ()


async def test_what_does_not_end_when_it_is_stopped_is_killed_before_the_deadline(monkeypatch, logs):
    """Every process of every sandbox is killed; whoever waits for one goes on then, also in a shielded step."""
    async with a_stand(on_drain=OnDrain.STOP) as stand:
        await stand.running("deaf")
        hold = stand.performers["deaf"].hold(c.StopContainers)

        async def kill_at_once(_ports, _leftovers):
            hold.let_go()

        monkeypatch.setattr(draining, "kill_at_once", kill_at_once)
        async with Draining.of(stand) as drain:
            await hold.begun.wait()
            drain.shutdown.end(Phase.SAVING)
            await settled()
            drain.shutdown.end(Phase.STOPPING)
        assert states(stand) == {"deaf": State.TERMINATED}
        assert (drain.came.late, drain.came.killed) == ((), ("deaf",))
        assert [entry["left"] for entry in logs if entry["event"] == "killing"] == [("deaf",)]
        (problem,) = left_by(stand.worker, drain.came, ()).problems
        assert "deaf did not end in time, and had to be killed" in problem.message


async def test_what_cannot_even_be_killed_is_left_and_named(monkeypatch, logs):
    async with a_stand(on_drain=OnDrain.STOP) as stand:
        await stand.running("stuck")
        await stand.running("a1")
        hold = stand.performers["stuck"].hold(c.StopContainers)

        async def nothing_to_be_looked_at(*_):
            raise ProblemError(a_problem(Reason.PROCESSES_UNREADABLE))

        monkeypatch.setattr(draining, "find_leftovers", nothing_to_be_looked_at)
        async with Draining.of(stand) as drain:
            await stand.until(State.TERMINATED, uid="a1")
            for phase in Phase:
                drain.shutdown.end(phase)
                await settled()
        assert states(stand) == {"a1": State.TERMINATED, "stuck": State.STOPPING}
        left = left_by(stand.worker, drain.came, ())
        assert "stuck had not ended when the worker left" in left.problems[0].message
        assert left.as_json()["stuck"]["state"] == "Stopping"
        assert [entry["left"] for entry in logs if entry["event"] == "drain"] == [["stuck"]]
        hold.let_go()


async def test_a_second_signal_shortens_a_drain_that_would_take_its_time():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand, anyio.create_task_group() as group:
        holds = await crowd(stand, ["a1"])
        group.start_soon(stand.drain)
        await holds["a1"].begun.wait()
        assert stand.worker.shutdown.ask() is not None
        await stand.until(State.TERMINATED)
        assert holds["a1"].cancelled.is_set()


async def test_a_drain_of_a_worker_without_actors_has_nothing_to_tell():
    async with a_stand() as stand:
        drained = await stand.drain()
        left = left_by(stand.worker, drained, ())
        assert (left.actors, left.problems) == ((), ())


async def test_who_had_ended_before_is_not_told_of_and_who_rests_is():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        await stand.terminated("over")
        await stand.running("a1")
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        drained = await stand.drain()
        assert [each.uid for each in left_by(stand.worker, drained, ()).actors] == ["a1"]


async def test_who_ends_between_the_signal_and_the_drain_is_told_of_and_so_is_who_is_taken_over_then():
    async with a_stand(on_drain=OnDrain.STOP) as stand:
        await stand.terminated("over")
        await stand.running("a1")
        present = Present(stand.worker)
        stand.worker.shutdown.when_asked = present.note
        stand.worker.shutdown.ask()
        await operations.stop(stand.worker, "a1")
        await stand.until(State.TERMINATED)
        await stand.life("a1").ended.wait()
        stand.worker.shutdown, asked = Shutdown(DRAIN_S), stand.worker.shutdown
        await stand.running("late")
        stand.worker.shutdown = asked
        drained = await drain(stand.ports.as_ports, stand.worker, present, nothing_inside)
        assert drained.found == {"a1", "late"}
        assert [each.uid for each in left_by(stand.worker, drained, ()).actors] == ["a1", "late"]
