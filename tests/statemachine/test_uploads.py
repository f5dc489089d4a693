"""Uploads beside the life of an actor: what Suspended tells of them, and what is known once they are done."""

from __future__ import annotations

import attrs
import pytest

from statemachine import events as e
from statemachine.actor import FETCH_S, Actor, Claims
from statemachine.machine import Ignored, step
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import DEADLINE_S, FINAL, State
from tests.statemachine.actors_on_stage import RELEASING, SUSPENDED, ignored, reason
from tests.statemachine.samples import CPU, FAIL, GPU, LATE, OLD, PROVEN, REFUSE_RESTORE, RUN, fed, problem

NOT_UPLOADED = problem(Reason.SNAPSHOT_NOT_UPLOADED)
FAILED_UPLOAD = e.UploadFailed(snapshot=PROVEN.id, problem=NOT_UPLOADED)
UPLOADED = e.SnapshotUploaded(snapshot=PROVEN.id, uri="s3://bucket/proven")


def stored_at(actor: Actor) -> str | None:
    assert actor.last_good is not None
    return actor.last_good.stored_uri


def test_an_upload_that_fails_is_told_in_suspended_and_nothing_else_changes():
    told = fed(SUSPENDED, FAILED_UPLOAD)
    assert told == attrs.evolve(SUSPENDED, problem=NOT_UPLOADED)


def test_an_upload_that_goes_on_failing_is_told_once_and_again_when_it_fails_otherwise():
    told = fed(SUSPENDED, FAILED_UPLOAD)
    assert ignored(told, FAILED_UPLOAD)
    other = Problem(step=Step.SUPERVISE, reason=Reason.SNAPSHOT_NOT_UPLOADED, subject="thing", message="no bucket")
    assert fed(told, e.UploadFailed(snapshot=PROVEN.id, problem=other)).problem == other


def test_an_upload_that_succeeds_takes_its_trouble_away_and_says_where_the_snapshot_is():
    stored = fed(SUSPENDED, FAILED_UPLOAD, UPLOADED)
    assert stored.problem is None
    assert stored.last_good == attrs.evolve(PROVEN, stored_uri="s3://bucket/proven")
    assert stored.origin == stored.last_good


def test_a_trouble_of_its_own_is_neither_replaced_nor_taken_away_by_an_upload():
    damaged = fed(SUSPENDED, e.Activate(source=PROVEN), e.AssignmentRecorded(), REFUSE_RESTORE)
    assert damaged.state is State.SUSPENDED
    assert ignored(damaged, FAILED_UPLOAD)
    assert fed(damaged, UPLOADED).problem == damaged.problem


def test_a_trouble_of_its_own_replaces_that_of_its_upload():
    held = attrs.evolve(fed(RELEASING, FAIL), problem=NOT_UPLOADED)
    assert reason(fed(held, RUN, LATE)) is Reason.STEP_DEADLINE_EXCEEDED


def test_a_resume_forgets_the_trouble_of_the_upload_and_a_snapshot_that_was_stored_stays_so():
    assert fed(SUSPENDED, FAILED_UPLOAD, RUN).problem is None
    resumed = fed(SUSPENDED, e.Activate(source=PROVEN), e.AssignmentRecorded(), UPLOADED)
    assert resumed.state is State.RESTORING
    assert stored_at(fed(resumed, e.SandboxRestored(), e.ContainersVerified())) == UPLOADED.uri


def test_an_upload_of_another_snapshot_than_the_last_good_one_changes_nothing():
    other = e.SnapshotUploaded(snapshot="older", uri="s3://bucket/older")
    assert fed(SUSPENDED, other) == SUSPENDED
    told = fed(SUSPENDED, FAILED_UPLOAD)
    assert fed(told, other).problem == NOT_UPLOADED
    assert ignored(SUSPENDED, e.UploadFailed(snapshot="older", problem=NOT_UPLOADED))


@pytest.mark.parametrize("state", [state for state in State if state not in {State.SUSPENDED, *FINAL}])
def test_in_every_other_state_an_upload_ends_well_but_its_failure_is_not_the_actors(state):
    actor = attrs.evolve(CPU, state=state, origin=PROVEN, last_good=PROVEN)
    assert isinstance(step(actor, FAILED_UPLOAD), Ignored)
    assert stored_at(fed(actor, UPLOADED)) == UPLOADED.uri


@pytest.mark.parametrize(("claims", "fetching"), [(Claims.NOTHING, State.RESTORING), (Claims.GPUS, State.INJECTING)])
def test_only_the_step_that_fetches_a_snapshot_has_the_time_to_fetch_it(claims, fetching):
    there = attrs.evolve(OLD, uri="s3://bucket/old", stored_uri="s3://bucket/old")
    actor = attrs.evolve(GPU, claims=claims, origin=there)
    for state in (State.INJECTING, State.RESTORING, State.ASSIGNED):
        extra_s = FETCH_S if state is fetching else 0
        assert attrs.evolve(actor, state=state).deadline_s == DEADLINE_S[state] + extra_s
        here = attrs.evolve(OLD, stored_uri="s3://bucket/old")
        assert attrs.evolve(actor, state=state, origin=here).deadline_s == DEADLINE_S[state]


def test_whoever_asks_to_run_before_he_has_heard_of_the_upload_does_not_make_it_forgotten():
    asked_before = e.Activate(source=PROVEN)
    stored = fed(SUSPENDED, UPLOADED)
    resumed = fed(stored, asked_before, e.AssignmentRecorded())
    assert stored_at(fed(resumed, e.SandboxRestored(), e.ContainersVerified())) == UPLOADED.uri
    of_another = attrs.evolve(PROVEN, id="another")
    assert fed(stored, attrs.evolve(asked_before, source=of_another)).origin == of_another
