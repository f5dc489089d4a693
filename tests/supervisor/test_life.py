"""The loop of one actor."""

import errno
import functools
from typing import Any

import anyio
import attrs
import orjson
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, By, OnDrain, Resource
from statemachine.machine import Refused, Transition
from statemachine.reasons import Reason
from statemachine.states import DEADLINE_S, State
from supervisor import step_runner
from supervisor.life import Entrance
from supervisor.mailbox import QUEUE_SIZE
from supervisor.memory import first_memory
from supervisor.refusals import draining
from tests.fakes.performer import a_problem, a_snapshot, failing
from tests.supervisor.lives import BOUND_S, DIRECTORY, TWO, Bench, a_running_life, an_assignment, settled, until

pytestmark = pytest.mark.anyio

SUSPEND, STOP = e.SuspendRequested(by=By.COMMAND), e.StopRequested(by=By.COMMAND)
RUN = e.Activate(by=By.COMMAND)
DIED = e.SandboxDied(problem=a_problem(Reason.SANDBOX_DIED))


@pytest.fixture
def deadlines(monkeypatch):
    """Deadlines of the test's own: state -> seconds; all others last for ever."""
    chosen: dict[State, float] = {}
    monkeypatch.setattr(Actor, "deadline_s", property(lambda actor: chosen.get(actor.state)))
    return chosen


async def test_a_life_goes_up_rests_and_ends():
    bench = Bench()
    async with bench.running(State.RUNNING) as life:
        assert bench.story == [
            "RecordAssignment", "RecordAssignment.", "CreateSandbox", "CreateSandbox.", "VerifyContainers",
            "VerifyContainers.",
        ]  # fmt: skip
        await life.ask(STOP)
        await life.ended.wait()
    assert bench.states[-2:] == [State.STOPPING, State.TERMINATED]


async def test_every_transition_is_on_disk_before_its_step_begins():
    bench = Bench()
    hold = bench.performer.hold(c.CreateSandbox)
    async with bench.running():
        await hold.begun.wait()
        assert bench.replayed().actor == bench.life.actor
        assert bench.life.actor.state is State.CREATING


async def test_what_rests_or_is_admitted_is_durable():
    bench = Bench()
    async with bench.running(State.RUNNING) as life:
        await life.ask(SUSPEND)
        await until(life, State.SUSPENDED)
        await life.ask(STOP)
        await life.ended.wait()
    events = [orjson.loads(line).get("to") for line in bench.journal.splitlines()]
    durable = bench.files.names("append_durably")
    assert bench.files.done[0] == ("replace", DIRECTORY.journal)
    assert events.count("Running") + events.count("Suspended") + events.count("Terminated") + 1 == len(durable)


async def test_cancelling_a_step_waits_for_its_own_cleanup_before_the_next_begins():
    bench = Bench()
    hold = bench.performer.hold(c.CreateSandbox, has_cleanup=True)
    async with bench.running() as life:
        await hold.begun.wait()
        await life.ask(STOP)
        await hold.cancelled.wait()
        await settled()
        assert "RollBack" not in bench.story
        hold.cleanup.set()
        await life.ended.wait()
    assert bench.story[-3:] == ["CreateSandbox!", "RollBack", "RollBack."]
    assert bench.performer.running_most == 1


async def test_a_cleanup_without_end_does_not_hold_up_the_actor_for_ever(monkeypatch):
    monkeypatch.setattr(step_runner, "CLEANUP_DEADLINE_S", 0.01)
    bench = Bench()
    hold = bench.performer.hold(c.CreateSandbox, has_cleanup=True)
    async with bench.running() as life:
        await hold.begun.wait()
        await life.ask(STOP)
        await until(life, State.TERMINATED)
        assert bench.story[-3:] == ["CreateSandbox", "RollBack", "RollBack."]
        hold.cleanup.set()


@pytest.mark.parametrize("answer", [failing(), e.SandboxCreated()])
async def test_an_answer_that_waits_in_the_queue_is_dropped_when_its_step_is_given_up(answer):
    bench = Bench()
    create, roll_back = bench.performer.hold(c.CreateSandbox), bench.performer.hold(c.RollBack)
    bench.performer.answers[c.CreateSandbox] = answer
    async with bench.running() as life, anyio.create_task_group() as group:
        await create.begun.wait()
        # The request and the answer are both in the queue before the loop comes to either.
        group.start_soon(life.ask, STOP)
        create.let_go()
        await roll_back.begun.wait()
        await settled()
        # A StepFailed of the old step would have ended the rollback as Failed while it ran.
        assert life.actor.state is State.ROLLING_BACK
        roll_back.let_go()
        await until(life, State.TERMINATED)


async def test_a_state_that_lasts_too_long_is_left_with_the_reason(deadlines):
    deadlines[State.CREATING] = 0.01
    bench = Bench()
    bench.performer.hold(c.CreateSandbox)
    async with bench.running(State.FAILED) as life:
        assert bench.story[-3:] == ["CreateSandbox!", "RollBack", "RollBack."]
        assert life.actor.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        assert life.actor.problem.step == "create"
        assert life.actor.problem.subject == "Creating"


async def test_a_deadline_begins_with_the_step_and_not_with_the_wait_for_the_one_before(deadlines):
    deadlines[State.ROLLING_BACK] = 0.05
    bench = Bench()
    hold = bench.performer.hold(c.CreateSandbox, has_cleanup=True)
    async with bench.running() as life:
        await hold.begun.wait()
        await life.ask(STOP)
        await hold.cancelled.wait()
        until_s = anyio.current_time() + 0.1
        while anyio.current_time() < until_s:
            await anyio.sleep(0.01)
        deadlines[State.ROLLING_BACK] = BOUND_S  # one that has begun already ends as it was
        hold.cleanup.set()
        await life.ended.wait()
        assert "RollBack!" not in bench.story
        assert life.actor.state is State.TERMINATED


async def test_a_step_that_is_ordered_anew_in_the_same_state_gets_the_whole_time_again(deadlines):
    deadlines[State.ROLLING_BACK] = 0.05
    found = attrs.evolve(first_memory(an_assignment(), None), state=State.ROLLING_BACK, held=(Resource.SANDBOX,))
    bench = Bench(actor=found)
    bench.performer.hold(c.RollBack)
    recovered = e.Recovered(finding=e.Finding.DEAD, problem=a_problem(Reason.SUPERVISOR_RESTARTED))
    # Recovered stays in RollingBack and orders RollBack: without a deadline of its own this would last for ever.
    async with bench.running(State.FAILED, entrance=recovered):
        assert "RollBack!" in bench.story


async def test_an_answer_that_came_in_time_is_not_beaten_by_a_deadline_that_passed_meanwhile(deadlines):
    deadlines[State.CREATING] = 1.0
    bench = Bench()
    hold = bench.performer.hold(c.CreateSandbox)
    async with bench.running() as life:
        await hold.begun.wait()
        hold.let_go()
        # The loop is busy with something else until long after the deadline.
        original, waited = bench.life._on_change, anyio.Event()

        async def slow(one):
            until_s = anyio.current_time() + 1.1
            while anyio.current_time() < until_s:
                await anyio.sleep(0.05)
            waited.set()
            await original(one)

        bench.life._on_change = slow
        await life.ask(e.SuspendRequested(by=By.DOCUMENT))
        await waited.wait()
        bench.life._on_change = original
        await until(life, State.SUSPENDED)
    assert "CreateSandbox!" not in bench.story
    assert State.ROLLING_BACK not in bench.states


@pytest.mark.parametrize("kind", [c.RecordAssignment, c.CreateSandbox, c.VerifyContainers])
async def test_an_unexpected_error_of_a_step_ends_this_actor_as_internal(kind):
    bench = Bench()
    bench.performer.answers[kind] = ZeroDivisionError("division by zero")
    async with bench.running(State.FAILED) as life:
        problem = life.actor.problem
        assert problem.reason is Reason.INTERNAL
        assert problem.step is c.STEP_OF_COMMAND[kind]
        assert "ZeroDivisionError" in problem.message


async def test_an_error_of_the_question_for_the_sandbox_is_no_end_either():
    bench = Bench()
    bench.performer.answers[c.CreateSandbox] = failing()
    bench.performer.fate_error = OSError(errno.EMFILE, "too many open files")
    async with bench.running(State.FAILED) as life:
        assert life.actor.problem.reason is Reason.RUNTIME_FAILED


@pytest.mark.parametrize(
    ("error", "reason"), [(failing(Reason.SANDBOX_DIED), Reason.SANDBOX_DIED), (KeyError("x"), Reason.INTERNAL)]
)
async def test_a_watch_that_fails_ends_the_actor_that_nobody_would_watch(error, reason):
    bench = Bench()
    bench.performer.watch_error = error
    async with bench.running(State.FAILED) as life:
        assert life.actor.problem.reason is reason


async def test_a_fault_in_the_loop_costs_one_event_and_not_the_loop():
    async with a_running_life() as bench:
        bench.change_error = RuntimeError("a fault of ours")
        outcome = await bench.life.ask(SUSPEND)
        bench.change_error = None
        assert isinstance(outcome, Refused)
        assert outcome.problem.reason is Reason.INTERNAL
        await bench.life.ask(STOP)
        await bench.life.ended.wait()


async def test_what_the_watch_sees_is_counted_and_ends_the_actor():
    bench = Bench(assignment=an_assignment(containers=TWO))
    async with bench.running(State.RUNNING) as life:
        feed: Any = bench.performer.feed
        await feed(e.ContainerExited(container="one", exit_code=0))
        await feed(e.ContainerExited(container="two", exit_code=7))
        await until(life, State.FAILED)
        assert life.actor.problem.reason is Reason.CONTAINER_FAILED
        assert bench.performer.feed is None  # nobody watches what is being ended


async def test_a_released_sandbox_is_not_watched_any_more():
    async with a_running_life() as bench:
        await bench.life.ask(SUSPEND)
        await until(bench.life, State.SUSPENDED)
        assert bench.performer.feed is None


@pytest.mark.parametrize("on_drain", OnDrain)
async def test_a_drain_returns_when_the_actor_holds_nothing_of_the_worker(on_drain):
    async with a_running_life() as bench:
        await bench.life.drain(on_drain)
        expected = State.SUSPENDED if on_drain is OnDrain.SUSPEND else State.TERMINATED
        assert bench.life.actor.state is expected


async def test_a_drain_waits_for_what_was_asked_of_a_resting_actor_before_it():
    bench = Bench(actor=attrs.evolve(first_memory(an_assignment(), a_snapshot()), state=State.SUSPENDED))
    async with bench.running(entrance=Entrance.AT_REST) as life:
        await life.feed(e.Activate(source=a_snapshot(), by=By.COMMAND))
        await life.drain(OnDrain.STOP)
        passed = len(bench.passed)
        await settled()
        assert len(bench.passed) == passed  # nothing happens to it any more
        assert State.ASSIGNED in {actor.state for actor in bench.passed}
        assert life.actor.state is State.SUSPENDED
        assert bench.performer.running == 0


async def test_a_drain_returns_when_the_rest_is_told_on_disk_too():
    """Found by the SIGTERM walk: the worker left with a status.json that still said Releasing."""
    async with a_running_life() as bench, anyio.create_task_group() as group:
        life, told, drained = bench.life, anyio.Event(), anyio.Event()
        original = life._on_change

        async def on_change(life):
            if life.actor.state is State.SUSPENDED:
                await told.wait()
            await original(life)

        async def drain():
            await life.drain(OnDrain.SUSPEND)
            drained.set()

        life._on_change, life.changed = on_change, anyio.lowlevel.checkpoint  # it looks as often as it can
        group.start_soon(drain)
        with anyio.fail_after(BOUND_S):
            while life.actor.state is not State.SUSPENDED:
                await anyio.lowlevel.checkpoint()
        await settled()
        assert not drained.is_set()
        told.set()
        await drained.wait()


async def test_a_drain_of_a_life_that_has_ended_or_rests_returns_at_once():
    async with a_running_life() as bench:
        await bench.life.ask(SUSPEND)
        await until(bench.life, State.SUSPENDED)
        await bench.life.drain(OnDrain.STOP)
        await bench.life.ask(STOP)
        await bench.life.ended.wait()
        await bench.life.drain(OnDrain.STOP)
    assert draining().reason is Reason.WORKER_DRAINING


async def test_the_next_life_is_asked_for_together_with_the_end_of_this_one():
    """Whoever sees Terminated must see at the same moment whether it is the end."""
    bench = Bench()
    seen = []
    async with bench.running(State.RUNNING) as life:
        hold = bench.performer.hold(c.StopContainers)
        await life.ask(STOP)
        await hold.begun.wait()
        assert isinstance(await life.ask(e.Activate(source=a_snapshot())), Transition)
        original = life._on_change

        async def look(one):
            seen.append((one.actor.state, one.begins_anew))
            await original(one)

        life._on_change = look
        hold.let_go()
        await life.ended.wait()
    assert seen == [(State.TERMINATED, True)]


async def test_a_life_found_at_rest_stays_there_and_begins_its_journal_with_what_is_true():
    resting = attrs.evolve(first_memory(an_assignment(), None), state=State.SUSPENDED, last_good=a_snapshot())
    bench = Bench(actor=resting)
    async with bench.running(entrance=Entrance.AT_REST) as life:
        await settled()
        assert life.actor == resting == bench.replayed().actor
        assert bench.story == []


async def test_every_state_that_passes_by_itself_has_a_deadline_here_too():
    assert set(DEADLINE_S) == {state for state in State if Actor(state=state).deadline_s is not None}


async def test_a_late_answer_finds_no_way_through_a_full_queue():
    """The step has ended, its answer waits for room; by then its state was left."""
    bench = Bench()
    create, roll_back = bench.performer.hold(c.CreateSandbox), bench.performer.hold(c.RollBack)
    bench.performer.answers[c.CreateSandbox] = failing()
    async with bench.running() as life, anyio.create_task_group() as group:
        await create.begun.wait()
        group.start_soon(life.ask, STOP)
        for _ in range(QUEUE_SIZE + 10):
            group.start_soon(functools.partial(life.ask, e.Activate(by=By.COMMAND)))
        create.let_go()
        await roll_back.begun.wait()
        await settled()
        assert life.actor.state is State.ROLLING_BACK
        roll_back.let_go()
        await life.ended.wait()
        group.cancel_scope.cancel()
