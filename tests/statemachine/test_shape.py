"""The shape of the machine: deadlines, ways out, rest and end, read off the table and off every reachable memory."""

from __future__ import annotations

import functools

import attrs
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import By, Pending, Resource
from statemachine.cells import Go, Ignore, Refuse
from statemachine.commands import STEP_OF_COMMAND
from statemachine.machine import Refused, Transition, step
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import DEADLINE_S, FINAL, PASSING, RESTING, STARTING, STEP_OF, State
from statemachine.table import TABLE
from tests.statemachine.reachable import Move, memories, moves
from tests.statemachine.samples import (
    DRAIN_STOP,
    DRAIN_STOP_NOW,
    DRAIN_SUSPEND,
    FAIL,
    FAIL_DEAD,
    LATE,
    REFUSE_RESTORE,
    REFUSE_SUSPEND,
    RUN,
    STOP,
    SUCCESS,
    SUSPEND,
    fed,
    settled,
    taken,
)

ANSWER_OF = {state: type(event) for state, event in SUCCESS.items()}
ALL_FAIL = dict.fromkeys(PASSING, FAIL)
SCHEDULES = {
    "all well": {},
    "every step fails": ALL_FAIL,
    "every step fails and kills the sandbox": dict.fromkeys(PASSING, FAIL_DEAD),
    "every step hangs": dict.fromkeys(PASSING, LATE),
    "suspend and restore are refused": {State.SUSPENDING: REFUSE_SUSPEND, State.RESTORING: REFUSE_RESTORE},
    "only cleanups succeed": {**ALL_FAIL, **{state: SUCCESS[state] for state in (State.ROLLING_BACK, State.STOPPING)}},
}


@functools.cache
def transitions() -> tuple[tuple[Move, Transition], ...]:
    return tuple((move, move.outcome) for move in moves() if move.outcome is not None)


def targets(state: State, kind: type) -> set[State]:
    return {cell.target for cell in TABLE[state, kind] if isinstance(cell, Go)}


def ways(state: State) -> set[State]:
    return {target for kind in e.EVENTS for target in targets(state, kind)}


def closure(start: set[State]) -> set[State]:
    seen, todo = set(start), list(start)
    while todo:
        for target in ways(todo.pop()) - seen:
            seen.add(target)
            todo.append(target)
    return seen


def test_states_are_resting_final_or_passing():
    assert {State.RUNNING, State.SUSPENDED, State.FAILED} == RESTING
    assert {State.TERMINATED} == FINAL
    assert set(PASSING) == set(State) - RESTING - FINAL
    assert set(STARTING) < set(PASSING)


def test_every_passing_state_has_a_deadline_and_a_step_and_no_other_state_has_one():
    assert set(DEADLINE_S) == set(STEP_OF) == set(PASSING)
    assert all(seconds > 0 for seconds in DEADLINE_S.values())
    for actor in memories():
        assert (actor.deadline_s is None) == (actor.state not in PASSING)


def test_a_deadline_has_room_for_the_probe_the_grace_and_the_delay():
    actor = attrs.evolve(memories()[0], grace_s=45.0, probe_s=20.0, tries=3)
    assert attrs.evolve(actor, state=State.VERIFYING).deadline_s == DEADLINE_S[State.VERIFYING] + 20
    assert attrs.evolve(actor, state=State.STOPPING).deadline_s == DEADLINE_S[State.STOPPING] + 45
    assert attrs.evolve(actor, state=State.BACKING_OFF).deadline_s == DEADLINE_S[State.BACKING_OFF] + 4
    assert attrs.evolve(actor, state=State.CREATING).deadline_s == DEADLINE_S[State.CREATING]


@pytest.mark.parametrize("kind", [e.StepFailed, e.DeadlineExceeded], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", PASSING)
def test_a_passing_state_is_left_when_its_step_fails_or_hangs(state, kind):
    left = targets(state, kind)
    assert left
    assert state not in left
    assert closure(left) & (RESTING | FINAL)


@pytest.mark.parametrize("state", PASSING)
def test_a_passing_state_is_left_when_its_step_succeeds(state):
    left = targets(state, ANSWER_OF[state])
    assert left - {state}
    assert closure(left) & (RESTING | FINAL)


@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
def test_a_stop_leads_to_terminated_from_every_state(state):
    assert State.TERMINATED in closure(targets(state, e.StopRequested))


def test_terminated_has_no_way_out():
    assert ways(State.TERMINATED) == set()


def test_every_state_can_be_reached_from_the_first():
    assert closure({State.ASSIGNED}) == set(State)
    assert {actor.state for actor in memories()} == set(State)


def test_resting_states_order_no_step_and_passing_states_are_entered_with_exactly_their_own():
    for move, new in transitions():
        steps = [STEP_OF_COMMAND[type(command)] for command in new.commands if type(command) in STEP_OF_COMMAND]
        if new.actor.state not in PASSING:
            assert steps == []
        elif new.actor.state is not move.actor.state or steps:
            assert steps == [STEP_OF[new.actor.state]], (move.actor.state, move.event)


def test_two_steps_never_run_at_once():
    """A running step has answered, is cancelled first, or died with the process, before another is ordered."""
    for move, new in transitions():
        kinds = [type(command) for command in new.commands]
        starts = any(kind in STEP_OF_COMMAND for kind in kinds)
        leaves = new.actor.state is not move.actor.state
        if move.actor.state not in PASSING or not (starts or leaves):
            assert c.CancelStep not in kinds
            continue
        # A refusal or a failure is an answer of the step, too; Recovered finds no step running.
        answered = isinstance(
            move.event,
            ANSWER_OF[move.actor.state] | e.StepFailed | e.RestoreRefused | e.SuspendRefused | e.Recovered,
        )
        assert kinds.count(c.CancelStep) == (0 if answered else 1), (move.actor.state, move.event)
        assert answered or kinds[0] is c.CancelStep


def test_what_stays_without_a_step_orders_nothing_else():
    for move, new in transitions():
        if new.actor.state is move.actor.state and move.actor.state in PASSING:
            kinds = {type(command) for command in new.commands}
            assert not kinds or kinds & set(STEP_OF_COMMAND)


def test_resting_states_keep_nothing_pending_and_follow_or_answer_what_was():
    for move, new in transitions():
        if new.actor.state in RESTING | FINAL:
            assert new.actor.pending is None, (move.actor.state, move.event)
        follows = [command.pending for command in new.commands if isinstance(command, c.FollowPending)]
        assert follows in ([], [move.actor.pending])
        assert not follows or new.actor.state in RESTING


def test_a_new_life_begins_only_for_a_document_that_came_while_the_old_one_was_ending():
    for move, new in transitions():
        if any(isinstance(command, c.BeginAnew) for command in new.commands):
            assert new.actor.state is State.TERMINATED
            assert move.actor.pending in {Pending.RUN, Pending.SUSPEND}


def test_an_end_drops_every_wish_that_came_before_it():
    for move, new in transitions():
        if new.actor.state is State.STOPPING and move.actor.state is not State.STOPPING:
            assert new.actor.pending is None


def test_terminated_holds_nothing():
    assert all(actor.held == () for actor in memories() if actor.state is State.TERMINATED)


def test_running_holds_a_sandbox_its_bundles_and_a_grant_when_it_claims():
    for actor in memories():
        if actor.state is State.RUNNING:
            assert {Resource.BUNDLES, Resource.SANDBOX} == set(actor.held) - {Resource.GRANT}
            assert (Resource.GRANT in actor.held) == (actor.claims == "Gpus")


def test_what_is_undone_is_held_and_goes_newest_first_and_all_of_it_but_a_grant_over_a_backoff():
    order = {resource: place for place, resource in enumerate(Resource)}
    for move, new in transitions():
        for command in new.commands:
            undo = getattr(command, "undo", None)
            if undo is None:
                continue
            assert list(undo) == sorted(undo, key=order.__getitem__, reverse=True)
            left = set(new.actor.held) - set(undo)
            if isinstance(command, c.Thaw):
                assert set(undo) <= {Resource.UNPROVEN_SNAPSHOT}
            elif new.actor.ending == "BackingOff" and new.actor.state is State.ROLLING_BACK:
                assert left <= {Resource.GRANT}
            else:
                assert left == set(), (move.actor.state, move.event)


def test_nothing_held_is_forgotten_unless_it_was_undone_or_never_made():
    """Memory of a resource goes away only with the answer of the step that undid it, or that did not make it."""
    gone = {
        e.RolledBack: set(Resource),
        e.TornDown: set(Resource),
        e.SandboxReleased: set(Resource),
        e.Thawed: {Resource.UNPROVEN_SNAPSHOT},
        e.SnapshotProven: {Resource.UNPROVEN_SNAPSHOT},
        e.RestoreRefused: {Resource.BUNDLES, Resource.SANDBOX},
    }
    for move, new in transitions():
        lost = set(move.actor.held) - set(new.actor.held)
        assert lost <= gone.get(type(move.event), set()), (move.actor.state, move.event)
        if isinstance(move.event, e.RolledBack) and move.actor.ending == "BackingOff":
            assert Resource.GRANT not in lost


def test_a_rollback_always_knows_where_it_leads_to():
    for (state, _kind), rows in TABLE.items():
        for cell in rows:
            if isinstance(cell, Go) and cell.target is State.ROLLING_BACK and state is not State.ROLLING_BACK:
                assert sum(update.name.startswith("End") for update in cell.remember) == 1


def test_the_last_good_snapshot_is_never_lost():
    for move, new in transitions():
        if move.actor.last_good is not None:
            assert new.actor.last_good is not None
        if new.actor.last_good != move.actor.last_good:
            saved = move.event.saved if isinstance(move.event, e.RolledBack) else None
            proven = move.event.snapshot if isinstance(move.event, e.SnapshotProven) else None
            if isinstance(move.event, e.SnapshotUploaded):
                assert new.actor.last_good is not None
                assert attrs.evolve(new.actor.last_good, stored_uri=None) == move.actor.last_good
                continue
            assert new.actor.last_good in {proven, saved, move.actor.origin}
            assert isinstance(move.event, e.SnapshotProven | e.SandboxRestored | e.RolledBack)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_memory_comes_to_rest_whatever_its_steps_answer(schedule):
    for actor in memories():
        assert settled(actor, SCHEDULES[schedule], limit=14).state not in PASSING


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stop_ends_every_memory_and_only_a_failed_cleanup_keeps_it_from_terminated(schedule):
    cleans = SCHEDULES[schedule].get(State.ROLLING_BACK) in {None, SUCCESS[State.ROLLING_BACK]}
    for actor in memories():
        if actor.state is State.TERMINATED:
            continue
        end = settled(fed(actor, STOP), SCHEDULES[schedule])
        if cleans:
            assert end.state is State.TERMINATED, actor
            assert end.held == ()
        else:
            assert end.state is not State.RUNNING
        # What could not be undone is remembered, and a second stop that succeeds undoes it.
        if end.state is not State.TERMINATED:
            assert settled(fed(end, STOP)).state is State.TERMINATED


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("drain", [DRAIN_SUSPEND, DRAIN_STOP, DRAIN_STOP_NOW], ids=["suspend", "stop", "stop now"])
def test_after_a_drain_nothing_runs_any_more(schedule, drain):
    for actor in memories():
        outcome = step(actor, drain)
        assert not isinstance(outcome, Refused)
        after = fed(actor, drain) if isinstance(outcome, Transition) else actor
        end = settled(after, SCHEDULES[schedule])
        assert end.state in {State.SUSPENDED, State.FAILED, State.TERMINATED}, actor
        if schedule == "all well":
            # What a cleanup that failed earlier left behind stays until somebody asks for the actor again.
            assert end.held == () or actor.state in RESTING


def test_a_drain_begins_no_new_life():
    for actor in memories():
        current = fed(actor, DRAIN_STOP) if isinstance(step(actor, DRAIN_STOP), Transition) else actor
        while current.state in PASSING:
            new = taken(current, SUCCESS[current.state])
            assert not any(isinstance(command, c.BeginAnew) for command in new.commands), actor
            current = fed(current, SUCCESS[current.state])


def test_a_document_that_wants_running_is_followed_unless_it_is_refused_or_the_actor_completes():
    for actor in memories():
        outcome = step(actor, RUN)
        if isinstance(outcome, Refused):
            assert outcome.problem.reason in {Reason.WORKER_DRAINING, Reason.ACTOR_TERMINATED}
            continue
        current = fed(actor, RUN) if isinstance(outcome, Transition) else actor
        anew = False
        for _ in range(30):
            if current.state not in PASSING:
                break
            commands = taken(current, SUCCESS[current.state]).commands
            anew = any(isinstance(command, c.BeginAnew) for command in commands)
            current = fed(current, SUCCESS[current.state])
        failed_meanwhile = actor.state is State.THAWING and (not actor.live or actor.lost_gpus)
        assert current.state is State.RUNNING or anew or failed_meanwhile, actor


def test_a_document_that_wants_suspended_is_followed_unless_it_is_refused_or_there_is_nothing_to_suspend():
    for actor in memories():
        outcome = step(actor, SUSPEND)
        if isinstance(outcome, Refused):
            assert outcome.problem.reason in {
                Reason.WORKER_DRAINING, Reason.ACTOR_TERMINATED, Reason.NOTHING_TO_SUSPEND,
            }  # fmt: skip
            continue
        current = fed(actor, SUSPEND) if isinstance(outcome, Transition) else actor
        anew = False
        while current.state in PASSING:
            commands = taken(current, SUCCESS[current.state]).commands
            anew = any(isinstance(command, c.BeginAnew) for command in commands)
            current = fed(current, SUCCESS[current.state])
        failed_meanwhile = actor.state in {State.THAWING, State.ROLLING_BACK} and current.state is State.FAILED
        completed = actor.state is State.THAWING and not actor.live and current.state is State.TERMINATED
        assert current.state is State.SUSPENDED or anew or failed_meanwhile or completed, actor


def test_commands_never_overrule_another_request_that_is_under_way():
    """A kept stop, drain or document is dropped by documents, drains and stops alone."""
    for move, _new in transitions():
        by = getattr(move.event, "by", None)
        if by is By.COMMAND and not isinstance(move.event, e.StopRequested) and move.actor.state in PASSING:
            harmless = {None, Pending.RUN, Pending.SUSPEND}
            assert move.actor.pending in harmless, (move.actor.state, move.event)


def test_a_stop_is_never_refused_and_a_fact_never_surprises():
    for move in moves():
        if isinstance(move.event, e.StopRequested):
            assert not isinstance(move.cell, Refuse)
            assert isinstance(move.cell, Ignore) == (move.actor.state is State.TERMINATED)


def test_deadline_and_step_words_agree():
    assert set(STEP_OF_COMMAND.values()) == set(STEP_OF.values())
    outside = {Step.ADMISSION, Step.RECOVER}
    assert set(Step) - set(STEP_OF.values()) == outside
