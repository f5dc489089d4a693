"""Who asks a life, and what becomes of the asking."""

import anyio
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import By
from statemachine.machine import Ignored, Refused, Transition
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.mailbox import QUEUE_SIZE
from tests.fakes.performer import a_problem
from tests.supervisor.lives import TWO, Bench, a_running_life, an_assignment, settled, until

pytestmark = pytest.mark.anyio

SUSPEND, STOP = e.SuspendRequested(by=By.COMMAND), e.StopRequested(by=By.COMMAND)
RUN = e.Activate(by=By.COMMAND)
DIED = e.SandboxDied(problem=a_problem(Reason.SANDBOX_DIED))


async def test_who_asks_an_ended_life_is_told_and_never_waits():
    bench = Bench()
    async with bench.running(State.RUNNING) as life:
        await life.ask(STOP)
        await life.ended.wait()
        for event in (RUN, SUSPEND, STOP):
            with pytest.raises(ProblemError) as caught:
                await life.ask(event)
            assert caught.value.problem.reason is Reason.ACTOR_TERMINATED


async def test_who_has_asked_while_the_life_ends_is_told_too():
    bench = Bench()
    told = []

    async def ask(event):
        with pytest.raises(ProblemError) as caught:
            await bench.life.ask(event)
        told.append(caught.value.problem.reason)

    hold = bench.performer.hold(c.StopContainers)
    async with bench.running(State.RUNNING) as life, anyio.create_task_group() as group:
        await life.ask(STOP)
        await hold.begun.wait()
        hold.let_go()
        await until(life, State.TERMINATED)
        for _ in range(QUEUE_SIZE + 50):  # some find no room in the queue
            group.start_soon(ask, SUSPEND)
        await life.ended.wait()
    assert told == [Reason.ACTOR_TERMINATED] * (QUEUE_SIZE + 50)


async def test_who_has_asked_a_life_that_is_cancelled_does_not_wait_for_ever():
    async with anyio.create_task_group() as group:
        async with a_running_life() as bench:
            refusing = []

            async def ask():
                with pytest.raises(ProblemError):
                    await bench.life.ask(SUSPEND)
                refusing.append(True)

            stuck = anyio.Event()

            async def never(_life):
                stuck.set()
                await anyio.sleep_forever()

            bench.life._on_change = never
            group.start_soon(bench.life.ask, SUSPEND)
            await stuck.wait()
            group.start_soon(ask)
            await settled()
        with anyio.fail_after(60):
            while not refusing:
                await anyio.sleep(0.001)


async def test_a_full_queue_makes_senders_wait_and_loses_nothing():
    bench = Bench(assignment=an_assignment(containers=TWO))
    hold = bench.performer.hold(c.VerifyContainers)
    outcomes = []

    async def ask():
        outcomes.append(await bench.life.ask(RUN))

    async with bench.running() as life, anyio.create_task_group() as group:
        await hold.begun.wait()
        for _ in range(3 * QUEUE_SIZE):
            group.start_soon(ask)
        await settled()
        hold.let_go()
        await until(life, State.RUNNING)
    assert len(outcomes) == 3 * QUEUE_SIZE


async def test_a_kept_request_is_followed_when_the_actor_rests():
    bench = Bench()
    hold = bench.performer.hold(c.CreateSandbox)
    async with bench.running() as life:
        await hold.begun.wait()
        assert isinstance(await life.ask(e.SuspendRequested()), Transition)
        assert life.actor.state is State.CREATING
        hold.let_go()
        await until(life, State.SUSPENDED)
        assert [state for state in bench.states if state in {State.RUNNING, State.SUSPENDING, State.RELEASING}]
    assert bench.replayed().actor == life.actor


async def test_a_request_that_is_refused_changes_nothing_and_names_the_reason():
    async with a_running_life() as bench:
        hold = bench.performer.hold(c.SaveSnapshot)
        await bench.life.ask(SUSPEND)
        await hold.begun.wait()
        before, journal = bench.life.actor, bench.journal
        outcome = await bench.life.ask(RUN)
        assert isinstance(outcome, Refused)
        assert outcome.problem.reason is Reason.OPERATION_IN_PROGRESS
        assert (bench.life.actor, bench.journal) == (before, journal)


async def test_a_request_that_is_fulfilled_already_is_answered_as_ignored():
    async with a_running_life() as bench:
        assert isinstance(await bench.life.ask(RUN), Ignored)
