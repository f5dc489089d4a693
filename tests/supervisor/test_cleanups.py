"""A cleanup that fails at rest costs nothing but room: the snapshot stands, and it is tried until it is done."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import By
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import cleanups
from tests.fakes.performer import a_problem
from tests.supervisor.lives import Bench, settled, until

pytestmark = pytest.mark.anyio

SUSPEND, RUN = e.SuspendRequested(by=By.COMMAND), e.Activate(by=By.COMMAND)


def stuck():
    return ProblemError(a_problem(Reason.STATE_UNWRITABLE, Step.TEARDOWN))


@pytest.fixture
def waits(monkeypatch):
    """How long each try was put off, which then takes no time; a third is never due."""
    asked = []

    async def sleep(delay_s):
        asked.append(delay_s)
        if len(asked) > 2:
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(cleanups, "anyio", SimpleNamespace(sleep=sleep))
    return asked


async def nothing_held(life):
    while life.actor.held:
        await life.changed()


async def test_a_proven_snapshot_whose_sandbox_cannot_be_cleared_away_is_suspended_and_cleared_later(waits):
    bench = Bench()
    bench.performer.answers |= {c.ReleaseSandbox: stuck(), c.RollBack: [stuck()]}
    async with bench.running(State.RUNNING) as life:
        await life.ask(SUSPEND)
        await until(life, State.SUSPENDED)
        assert life.actor.problem.reason is Reason.STATE_UNWRITABLE
        assert life.actor.held
        snapshot = life.actor.last_good
        await nothing_held(life)
        assert (life.actor.state, life.actor.problem, life.actor.last_good) == (State.SUSPENDED, None, snapshot)
    assert waits == [5.0, 10.0]
    assert bench.story.count("RollBack") == 2
    assert bench.replayed().actor == life.actor


async def test_a_failed_actor_keeps_its_first_cause_over_the_cleanups_that_follow(waits):
    bench = Bench()
    bench.performer.answers |= {c.CreateSandbox: ProblemError(a_problem()), c.RollBack: [stuck()]}
    async with bench.running(State.FAILED) as life:
        await nothing_held(life)
        await until(life, State.FAILED)
        assert life.actor.problem.reason is Reason.RUNTIME_FAILED
    assert waits == [5.0]


async def test_while_it_cannot_be_done_it_is_tried_later_and_later_and_a_stop_needs_not_wait(waits):
    bench = Bench()
    bench.performer.answers |= {c.ReleaseSandbox: stuck(), c.RollBack: [stuck(), stuck(), stuck()]}
    async with bench.running(State.RUNNING) as life:
        await life.ask(SUSPEND)
        while len(waits) < 3:
            await anyio.lowlevel.checkpoint()
        assert waits == [5.0, 10.0, 20.0]
        await life.ask(e.StopRequested(by=By.COMMAND))
        await life.ended.wait()
    assert life.actor.state is State.TERMINATED


@asynccontextmanager
async def suspended_and_not_released(waits):
    """A life that still holds its sandbox, with a cleanup that never comes due by itself."""
    waits.extend([0.0, 0.0])
    bench = Bench()
    bench.performer.answers[c.ReleaseSandbox] = stuck()
    async with bench.running(State.RUNNING) as life:
        await life.ask(SUSPEND)
        await until(life, State.SUSPENDED)
        yield life


async def test_what_is_told_of_an_actor_meanwhile_brings_no_try_of_its_own(waits):
    async with suspended_and_not_released(waits) as life:
        for number in range(3):
            uri = f"memory:///{number}"
            await life.ask(e.SnapshotUploaded(snapshot=life.actor.last_good.id, uri=uri))
            assert life.actor.last_good.stored_uri == uri
        await settled()
        assert life.actor.held
    assert waits == [0.0, 0.0, 5.0]


async def test_a_request_that_comes_first_undoes_it_at_once_and_what_was_due_then_finds_nothing(waits):
    async with suspended_and_not_released(waits) as life:
        await life.ask(RUN)
        await until(life, State.RUNNING)
        await life.feed(e.CleanupDue())
        assert life.actor.state is State.RUNNING
