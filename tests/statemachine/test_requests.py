"""Requests, drains and facts that meet an actor on its way."""

from __future__ import annotations

import attrs
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, By, Pending, Resource, Restart
from statemachine.machine import Transition, step
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import State
from tests.statemachine.actors_on_stage import (
    BACKING_OFF,
    FAILED,
    RELEASING,
    RETRYING,
    STOPPING,
    SUSPENDED,
    SUSPENDING,
    TERMINATED,
    THAWING,
    ignored,
    path,
    reason,
    refusal,
    well,
)
from tests.statemachine.samples import (
    ALIVE,
    CPU,
    DEAD,
    DIED,
    DRAIN_STOP,
    DRAIN_STOP_NOW,
    DRAIN_SUSPEND,
    FAIL,
    GPU,
    LATE,
    LOST,
    OLD,
    REFUSE_RESTORE,
    REFUSE_SUSPEND,
    RUN,
    RUN_NOW,
    SAVED,
    STOP,
    STOP_NOW,
    SUCCESS,
    SUSPEND,
    SUSPEND_NOW,
    WELL_GONE,
    WELL_GONE_ORIGIN_GOOD,
    climbed,
    exited,
    fed,
    restored_from,
    running,
    settled,
    taken,
)

S = State


def test_a_running_actor_ignores_a_wish_to_run_and_a_suspended_one_a_wish_to_suspend():
    assert ignored(running(CPU), RUN)
    assert ignored(SUSPENDED, SUSPEND)
    assert ignored(TERMINATED, STOP)


def test_operations_that_overlap_by_command_are_refused():
    resumed = fed(SUSPENDED, RUN_NOW)
    for actor, event in (
        (resumed, SUSPEND_NOW),
        (SUSPENDING, RUN_NOW),
        (RELEASING, RUN_NOW),
        (THAWING, SUSPEND_NOW),
        (STOPPING, RUN_NOW),
        (STOPPING, SUSPEND_NOW),
        (fed(RELEASING, STOP_NOW), SUSPEND_NOW),
        (fed(climbed(CPU, S.CREATING), FAIL), RUN_NOW),
        (fed(climbed(CPU, S.CREATING), FAIL), SUSPEND_NOW),
    ):
        assert refusal(actor, event) is Reason.OPERATION_IN_PROGRESS


def test_what_cannot_be_suspended_is_refused():
    assert refusal(FAILED, SUSPEND) is Reason.NOTHING_TO_SUSPEND
    assert refusal(fed(running(CPU), DIED), SUSPEND) is Reason.NOTHING_TO_SUSPEND
    assert refusal(TERMINATED, SUSPEND) is Reason.ACTOR_TERMINATED
    assert refusal(TERMINATED, RUN) is Reason.ACTOR_TERMINATED


def test_a_document_may_suspend_what_a_command_resumes():
    assert fed(SUSPENDED, RUN_NOW, SUSPEND).pending is Pending.SUSPEND


def test_the_last_document_wins_on_the_way_down_and_up():
    assert path(fed(SUSPENDING, RUN), SAVED, e.SandboxReleased()) == [S.RELEASING, S.SUSPENDED, S.ASSIGNED]
    assert path(fed(SUSPENDING, RUN, SUSPEND), SAVED, e.SandboxReleased()) == [S.RELEASING, S.SUSPENDED]
    assert path(fed(SUSPENDING, RUN), REFUSE_SUSPEND, e.Thawed()) == [S.THAWING, S.RUNNING]
    assert path(fed(THAWING, SUSPEND), e.Thawed()) == [S.RUNNING, S.SUSPENDING]
    assert path(fed(THAWING, SUSPEND, RUN), e.Thawed()) == [S.RUNNING]
    assert path(fed(CPU, SUSPEND, RUN), *well(S.ASSIGNED, S.CREATING, S.VERIFYING))[-1] is S.RUNNING
    assert path(fed(RELEASING, STOP, RUN), e.SandboxReleased()) == [S.SUSPENDED, S.ASSIGNED]
    assert path(fed(RELEASING, RUN, STOP), e.SandboxReleased()) == [S.SUSPENDED, S.STOPPING]


def begins_anew(actor: Actor, event: e.Event) -> bool:
    return c.BeginAnew() in taken(actor, event).commands


def test_a_higher_generation_begins_anew_whichever_state_it_wants():
    for wish in (RUN, SUSPEND):
        assert begins_anew(fed(STOPPING, wish), e.TornDown())
        assert begins_anew(fed(STOPPING, FAIL, wish), WELL_GONE)
        assert begins_anew(fed(STOPPING, wish, FAIL), WELL_GONE)
        assert not begins_anew(fed(STOPPING, wish, STOP), e.TornDown())
        assert not begins_anew(fed(STOPPING, wish, DRAIN_STOP), e.TornDown())


def test_a_stop_drops_the_wish_that_came_before_it():
    """Else the actor that was just stopped would begin anew."""
    assert not begins_anew(fed(SUSPENDING, RUN, STOP), e.TornDown())
    assert not begins_anew(fed(THAWING, SUSPEND, STOP), e.TornDown())
    assert not begins_anew(fed(CPU, SUSPEND, STOP), WELL_GONE)
    assert not begins_anew(fed(BACKING_OFF, SUSPEND, STOP), WELL_GONE)
    completing = fed(THAWING, SUSPEND, exited("one", 0), exited("two", 0), e.Thawed())
    assert not begins_anew(completing, e.TornDown())


def test_a_wish_to_run_that_meets_a_rollback_is_followed_at_rest():
    rolling = fed(climbed(CPU, S.CREATING), FAIL)
    assert path(fed(rolling, RUN), WELL_GONE) == [S.FAILED, S.ASSIGNED]
    back = fed(climbed(restored_from(OLD), S.RESTORING), FAIL)
    assert path(fed(back, RUN), WELL_GONE_ORIGIN_GOOD) == [S.SUSPENDED, S.ASSIGNED]


def test_a_wish_to_run_is_answered_by_a_cleanup_that_fails_not_followed_without_end():
    assert path(fed(running(CPU), DIED, RUN), FAIL) == [S.FAILED]
    assert path(fed(RELEASING, FAIL), RUN, FAIL) == [S.ROLLING_BACK, S.SUSPENDED]


def not_undone(at, failure=e.StepFailed):
    problem = Problem(step=at, reason=Reason.PROCESSES_UNREADABLE, subject="a sandbox", message="no /proc")
    return failure(problem=problem)


@pytest.mark.parametrize("again", [e.StepFailed, e.DeadlineExceeded])
def test_what_a_failed_cleanup_has_answered_is_told_until_somebody_asks_again(again):
    answered = fed(RELEASING, not_undone(Step.RELEASE), RUN, not_undone(Step.TEARDOWN, again))
    assert (answered.state, reason(answered)) == (S.SUSPENDED, Reason.PROCESSES_UNREADABLE)
    clean = fed(answered, e.CleanupDue(), WELL_GONE_ORIGIN_GOOD)
    assert (clean.state, clean.held, reason(clean)) == (S.SUSPENDED, (), Reason.PROCESSES_UNREADABLE)
    assert clean.problem is not None
    assert "Running was asked for" in clean.problem.message
    assert fed(clean, RUN).problem is None


def test_a_cleanup_that_comes_about_later_leaves_nothing_to_tell_where_nobody_has_asked():
    left = fed(RELEASING, not_undone(Step.RELEASE))
    assert reason(left) is Reason.PROCESSES_UNREADABLE
    assert fed(left, e.CleanupDue(), WELL_GONE_ORIGIN_GOOD).problem is None


def test_a_suspend_is_kept_over_a_backoff():
    rolling = fed(running(RETRYING), exited("one", 7), exited("two", 7))
    for kept in (fed(rolling, SUSPEND, WELL_GONE), fed(rolling, WELL_GONE, SUSPEND)):
        assert (kept.state, kept.pending) == (S.BACKING_OFF, Pending.SUSPEND)
        assert settled(kept).state is S.SUSPENDED
    by_command = fed(running(fed(RETRYING, *well(S.ASSIGNED))), exited("one", 7), exited("two", 7), WELL_GONE)
    assert refusal(attrs.evolve(by_command, asked_by=By.COMMAND), SUSPEND_NOW) is Reason.OPERATION_IN_PROGRESS


def test_a_suspend_of_a_try_that_holds_its_grant_gives_the_grant_back():
    actor = running(restored_from(OLD, RETRYING))
    assigned = fed(actor, exited("one", 7), exited("two", 7), WELL_GONE_ORIGIN_GOOD, e.BackoffElapsed(), SUSPEND)
    assert assigned.held == (Resource.GRANT,)
    rest = settled(assigned)
    assert (rest.state, rest.held) == (S.SUSPENDED, ())


@pytest.mark.parametrize(
    ("event", "end"),
    [(STOP, S.TERMINATED), (DRAIN_STOP, S.FAILED), (DRAIN_SUSPEND, S.FAILED), (LOST, S.FAILED), (DEAD, S.FAILED)],
    ids=["stop", "drain by stop", "drain by suspend", "lost GPU", "restart"],
)
def test_the_grant_that_a_rollback_leaves_for_the_next_try_is_undone_when_there_will_be_none(event, end):
    rolling = fed(running(RETRYING), exited("one", 7), exited("two", 7))
    actor, undone = fed(rolling, event), set[Resource]()
    while actor.state is S.ROLLING_BACK:
        new = taken(actor, WELL_GONE)
        undone |= {resource for command in new.commands for resource in getattr(command, "undo", ())}
        actor = new.actor
    assert (actor.state, actor.held) == (end, ())
    assert Resource.GRANT in undone or event is DEAD


def test_a_wish_to_run_that_meets_a_rollback_before_a_backoff_begins_with_fresh_tries():
    rolling = fed(running(attrs.evolve(RETRYING, tries=3)), exited("one", 7), exited("two", 7), RUN)
    assert path(rolling, WELL_GONE, WELL_GONE) == [S.ROLLING_BACK, S.FAILED, S.ASSIGNED]
    assert fed(rolling, WELL_GONE, WELL_GONE).tries == 0
    assert fed(BACKING_OFF, RUN_NOW).tries == 0


def test_a_stop_survives_whatever_comes_while_the_tries_are_given_up():
    rolling = fed(running(RETRYING), exited("one", 7), exited("two", 7), STOP)
    assert ignored(rolling, DRAIN_STOP)
    assert settled(fed(rolling, LOST)).state is S.TERMINATED
    assert settled(fed(rolling, DEAD)).state is S.TERMINATED


# ---- drains


def test_a_drain_is_not_overruled_by_a_later_wish():
    saving = fed(running(CPU), DRAIN_SUSPEND)
    thawing = fed(saving, REFUSE_SUSPEND)
    releasing = fed(saving, SAVED)
    for actor in (saving, releasing):
        assert ignored(actor, SUSPEND)
    for actor in (saving, releasing, thawing):
        assert refusal(actor, RUN) is Reason.WORKER_DRAINING
    assert refusal(thawing, SUSPEND) is Reason.WORKER_DRAINING
    rolling = fed(running(RETRYING), exited("one", 7), exited("two", 7), DRAIN_STOP)
    assert refusal(rolling, RUN) is Reason.WORKER_DRAINING
    assert refusal(rolling, SUSPEND) is Reason.WORKER_DRAINING


def test_a_drain_drops_a_kept_wish_to_run():
    assert path(fed(RELEASING, RUN, DRAIN_SUSPEND), e.SandboxReleased()) == [S.SUSPENDED]
    assert path(fed(running(CPU), DIED, RUN, DRAIN_STOP), WELL_GONE) == [S.FAILED]
    assert path(fed(SUSPENDING, RUN, DRAIN_STOP), SAVED, e.SandboxReleased()) == [S.RELEASING, S.SUSPENDED]


def test_a_second_drain_does_not_try_again_to_suspend():
    thawing = fed(running(CPU), DRAIN_SUSPEND, REFUSE_SUSPEND)
    assert path(fed(thawing, DRAIN_SUSPEND), e.Thawed()) == [S.RUNNING, S.STOPPING]


def test_a_drain_whose_time_is_over_says_so_unless_the_actor_has_a_trouble_of_its_own():
    saving = fed(running(CPU), DRAIN_SUSPEND)
    late, refused = fed(saving, DRAIN_STOP_NOW).problem, fed(saving, REFUSE_SUSPEND, DRAIN_STOP_NOW).problem
    assert late is not None
    assert late.reason is Reason.WORKER_DRAINING
    assert refused is not None
    assert refused.reason is Reason.OPEN_DELETED_FILE
    assert fed(saving, DRAIN_STOP_NOW).pending is None
    assert ignored(fed(saving, SAVED), DRAIN_STOP_NOW)


def test_a_drain_dies_with_the_process_that_drained():
    saving = fed(running(CPU), DRAIN_SUSPEND)
    assert path(saving, ALIVE, e.Thawed()) == [S.THAWING, S.RUNNING]
    assert path(fed(saving, REFUSE_SUSPEND), ALIVE, e.Thawed()) == [S.THAWING, S.RUNNING]
    assert fed(saving, SAVED, ALIVE).pending is None


def test_a_drain_leaves_what_rests_alone():
    for actor in (SUSPENDED, FAILED, TERMINATED, STOPPING, RELEASING):
        assert ignored(actor, DRAIN_STOP)


# ---- facts


def test_a_lost_gpu_does_not_touch_an_actor_that_holds_none():
    for actor in (running(CPU), SUSPENDING, THAWING, STOPPING, RELEASING, SUSPENDED, FAILED, TERMINATED, GPU):
        assert ignored(actor, LOST)
    assert ignored(fed(running(CPU), DIED), LOST)
    cpu_tries = fed(running(attrs.evolve(CPU, restart=Restart.ON_FAILURE)), exited("one", 7), exited("two", 7))
    assert ignored(cpu_tries, LOST)
    assert ignored(fed(cpu_tries, WELL_GONE), LOST)


def test_the_end_of_a_sandbox_that_is_being_ended_surprises_nobody():
    for actor in (RELEASING, STOPPING, SUSPENDED, FAILED, TERMINATED, BACKING_OFF, fed(running(CPU), DIED)):
        assert ignored(actor, DIED)


def test_late_answers_are_ignored_where_no_step_waits_for_them():
    for actor in (running(CPU), SUSPENDED, FAILED, TERMINATED):
        for event in (*SUCCESS.values(), FAIL, LATE, REFUSE_SUSPEND, REFUSE_RESTORE):
            assert ignored(actor, event)


def test_recovery_of_what_was_ending_completes_the_end():
    rolling = fed(climbed(CPU, S.CREATING), STOP)
    recovered = taken(rolling, DEAD)
    assert recovered.commands == (c.RollBack(undo=(Resource.SANDBOX, Resource.BUNDLES)),)
    assert (settled(recovered.actor).state, settled(recovered.actor).problem) == (S.TERMINATED, None)


def test_the_first_cause_of_a_rollback_is_kept_whatever_its_cleanup_says():
    rolling = fed(climbed(CPU, S.CREATING), FAIL)
    for event in (LATE, DEAD):
        new = step(rolling, event)
        assert isinstance(new, Transition)
        assert reason(new.actor) is Reason.RUNTIME_FAILED
