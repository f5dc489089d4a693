"""A life and what stands of it on disk: full disks, higher generations, any story at all."""

import contextlib
import errno

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.journal import Mark
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, By, ContainerFate, Restart
from statemachine.machine import Ignored, Refused, Transition, step
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State
from supervisor.life import Entrance
from supervisor.mailbox import Adoption
from supervisor.memory import adapt
from tests.fakes.performer import a_problem, a_snapshot, failing
from tests.statemachine.samples import EVERY_EVENT
from tests.supervisor.lives import DIRECTORY, TWO, Bench, a_running_life, an_assignment, settled, until

pytestmark = pytest.mark.anyio

SUSPEND, STOP = e.SuspendRequested(by=By.COMMAND), e.StopRequested(by=By.COMMAND)


def fill(files):
    for operation in ("append", "append_durably", "replace"):
        files.fail(operation, DIRECTORY.journal, errno.ENOSPC)


def an_adoption(assignment, source=None):
    return Adoption(assignment=assignment, actor=lambda actor: adapt(actor, assignment), source=source)


async def test_a_full_disk_costs_the_story_and_not_the_actor():
    async with a_running_life() as bench:
        fill(bench.files)
        await bench.life.ask(SUSPEND)
        await until(bench.life, State.SUSPENDED)
        await bench.life.ask(e.Activate(source=a_snapshot()))
        await until(bench.life, State.RUNNING)
        assert bench.life.actor.problem is None


async def test_a_journal_with_a_gap_is_whole_again_as_soon_as_there_is_room():
    async with a_running_life() as bench:
        fill(bench.files)
        await bench.life.ask(SUSPEND)
        await until(bench.life, State.SUSPENDED)
        bench.files.failures.clear()
        await bench.life.ask(e.Activate(source=a_snapshot()))
        await until(bench.life, State.RUNNING)
        await settled()
        assert bench.replayed().actor == bench.life.actor


async def test_a_mark_that_cannot_be_written_is_no_trouble_of_the_step():
    async with a_running_life() as bench:
        before = bench.journal
        fill(bench.files)
        await bench.life.mark(Mark(step=Step.SUSPEND, mark="Paused"))
        assert bench.journal == before
        assert bench.life.actor.state is State.RUNNING


async def test_a_transition_and_a_mark_at_once_stand_in_the_order_of_their_numbers():
    async with a_running_life() as bench, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(bench.life.mark, Mark(step=Step.SUSPEND, mark=str(number)))
        await bench.life.ask(SUSPEND)
    numbers = [int(line.split(b'"seq":')[1].split(b",")[0]) for line in bench.journal.splitlines()]
    assert numbers == sorted(numbers)


async def test_a_higher_generation_is_adopted_before_its_event_is_followed():
    async with a_running_life() as bench:
        new = an_assignment(2, restartPolicy="OnFailure", desiredState="Suspended")
        outcome = await bench.life.ask(e.SuspendRequested(), an_adoption(new))
        assert isinstance(outcome, Transition)
        assert bench.performer.adopted == [new]
        assert bench.life.assignment == new
        assert bench.life.actor.restart is Restart.ON_FAILURE
        await until(bench.life, State.SUSPENDED)
    assert bench.replayed().actor == bench.life.actor


async def test_a_higher_generation_whose_wish_is_true_already_is_adopted_too():
    async with a_running_life() as bench:
        new = an_assignment(2, restartPolicy="OnFailure")
        assert isinstance(await bench.life.ask(e.Activate(), an_adoption(new)), Ignored)
        assert bench.life.assignment.generation == 2
        assert bench.replayed().actor.restart is Restart.ON_FAILURE


async def test_a_higher_generation_whose_event_is_refused_is_not_adopted():
    bench = Bench()
    bench.performer.answers[c.CreateSandbox] = failing()
    async with bench.running(State.FAILED) as life:
        before, journal = life.actor, bench.journal
        new = an_assignment(2, desiredState="Suspended", restartPolicy="OnFailure")
        outcome = await life.ask(e.SuspendRequested(), an_adoption(new))
        assert isinstance(outcome, Refused)
        assert outcome.problem.reason is Reason.NOTHING_TO_SUSPEND
        assert (life.assignment.generation, life.actor, bench.journal) == (1, before, journal)
        assert bench.performer.adopted == []


async def test_a_higher_generation_that_cannot_be_written_is_refused_and_changes_nothing():
    async with a_running_life() as bench:
        bench.performer.adopt_error = ProblemError(a_problem(Reason.STATE_UNWRITABLE, Step.ASSIGN))
        before = bench.life.actor
        outcome = await bench.life.ask(
            e.SuspendRequested(), an_adoption(an_assignment(2, desiredState="Suspended", restartPolicy="OnFailure"))
        )
        assert isinstance(outcome, Refused)
        assert outcome.problem.reason is Reason.STATE_UNWRITABLE
        assert (bench.life.assignment.generation, bench.life.actor) == (1, before)


async def test_an_adoption_whose_base_cannot_be_journaled_costs_no_actor():
    async with a_running_life() as bench:
        fill(bench.files)
        assert isinstance(await bench.life.ask(e.Activate(), an_adoption(an_assignment(2))), Ignored)
        bench.files.failures.clear()
        await bench.life.ask(STOP)
        await bench.life.ended.wait()
    assert bench.replayed().actor.state is State.TERMINATED


@pytest.mark.parametrize("state", State)
def test_what_a_generation_changes_in_memory_never_changes_whether_its_event_is_refused(state):
    new = an_assignment(2, restartPolicy="OnFailure")
    actor = Actor(state=state, containers=(ContainerFate(name="main"),))
    for event in (e.Activate(), e.SuspendRequested(), e.StopRequested()):
        assert type(step(actor, event)) is type(step(adapt(actor, new), event))


async def test_a_kept_run_restores_the_snapshot_that_the_document_names_whatever_was_asked_meanwhile():
    async with a_running_life() as bench:
        named = a_snapshot(9)
        hold = bench.performer.hold(c.SaveSnapshot)
        await bench.life.ask(SUSPEND)
        await hold.begun.wait()
        new = an_assignment(2, snapshot={"uri": named.uri})
        assert isinstance(await bench.life.ask(e.Activate(source=named), an_adoption(new, named)), Transition)
        # Refused, and so without any effect; least of all on what will be restored.
        refused = await bench.life.ask(e.Activate(source=a_snapshot(5), by=By.COMMAND))
        assert isinstance(refused, Refused)
        hold.let_go()
        await until(bench.life, State.RUNNING)
        assert bench.life.actor.origin == named


async def test_a_kept_run_of_a_document_that_wants_a_cold_start_is_one():
    async with a_running_life() as bench:
        hold = bench.performer.hold(c.SaveSnapshot)
        await bench.life.ask(SUSPEND)
        await hold.begun.wait()
        await bench.life.ask(e.Activate(), an_adoption(an_assignment(2, snapshot={"from": "None"})))
        hold.let_go()
        await until(bench.life, State.RUNNING)
        assert bench.life.actor.origin is None
        assert bench.life.actor.last_good is not None


REQUESTS = [event for event in EVERY_EVENT if isinstance(event, e.REQUESTS)]
OBSERVATIONS = [event for event in EVERY_EVENT if isinstance(event, (e.ContainerExited, e.SandboxDied, e.GpuLost))]
BAD_ANSWERS = [failing(), failing(Reason.SANDBOX_DIED), ZeroDivisionError()]
KINDS = [c.CreateSandbox, c.RestoreSandbox, c.VerifyContainers, c.SaveSnapshot, c.ReleaseSandbox, c.Thaw, c.RollBack]


@given(
    happenings=st.lists(st.sampled_from([*REQUESTS, *REQUESTS, *OBSERVATIONS, "settle", "full", "space"]), max_size=30),
    troubles=st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([None, *BAD_ANSWERS])), max_size=12),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_whatever_happens_one_step_runs_the_actor_comes_to_rest_and_the_journal_tells_it(happenings, troubles):
    bench = Bench(assignment=an_assignment(containers=TWO))
    for kind, answer in troubles:
        bench.performer.answers.setdefault(kind, []).append(answer)
    await bench.life.found()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.life.run, Entrance.NEW)
        for happening in happenings:
            if bench.life.ended.is_set():
                break
            match happening:
                case "settle":
                    await settled()
                case "full":
                    fill(bench.files)
                case "space":
                    bench.files.failures.clear()
                case _:
                    group.start_soon(_say, bench.life, happening)
        # An end that came while nothing could be written cannot be told any more: the journal ends earlier, and whole.
        untold = bool(bench.files.failures) and bench.life.ended.is_set()
        bench.files.failures.clear()
        await settled()
        assert bench.life.actor.state in RESTING | FINAL
        if not bench.life.ended.is_set():
            await bench.life.ask(STOP)
            await bench.life.ended.wait()
        group.cancel_scope.cancel()
    assert bench.performer.running_most <= 1
    assert bench.replayed().actor in (bench.passed if untold else [bench.life.actor])
    assert bench.performer.feed is None


async def _say(life, event):
    with contextlib.suppress(ProblemError):  # the life is over
        await life.ask(event)
