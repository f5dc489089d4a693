"""DESIGN section 3 row by row: from where, what happens, through which states."""

from __future__ import annotations

import attrs
import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, Pending, Resource
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import STARTING, State
from tests.statemachine.actors_on_stage import (
    BACKING_OFF,
    FAILED,
    GPU_RESTORE,
    GPU_SUSPENDING,
    RELEASING,
    RETRYING,
    STOPPING,
    SUSPENDED,
    SUSPENDING,
    THAWING,
    UP,
    ignored,
    path,
    reason,
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
    FAIL_DEAD,
    GPU,
    HALF,
    HALF_ALIVE,
    LATE,
    LOST,
    OLD,
    PROVEN,
    REFUSE_RESTORE,
    REFUSE_SUSPEND,
    RUN,
    RUN_NOW,
    SOUR,
    STOP,
    STOP_NOW,
    SUCCESS,
    SUSPEND,
    WELL_GONE,
    WELL_GONE_ORIGIN_BAD,
    WELL_GONE_ORIGIN_GOOD,
    climbed,
    exited,
    fed,
    problem,
    restored_from,
    running,
    settled,
    taken,
)

S = State

ROWS: dict[str, tuple[Actor, list[e.Event], list[State]]] = {
    "a CPU actor is created without any GPU step": (CPU, well(S.ASSIGNED, S.CREATING, S.VERIFYING), [
        S.CREATING, S.VERIFYING, S.RUNNING]),
    "a CPU actor is restored without any GPU step": (restored_from(OLD), well(S.ASSIGNED, S.RESTORING, S.VERIFYING), [
        S.RESTORING, S.VERIFYING, S.RUNNING]),
    "a GPU actor takes every GPU step, then is created": (
        GPU, well(S.ASSIGNED, *UP, S.CREATING, S.VERIFYING), [*UP, S.CREATING, S.VERIFYING, S.RUNNING]),
    "a GPU actor takes every GPU step, then is restored": (
        GPU_RESTORE, well(S.ASSIGNED, *UP, S.RESTORING, S.VERIFYING), [*UP, S.RESTORING, S.VERIFYING, S.RUNNING]),
    "a running actor is suspended": (running(CPU), [SUSPEND, *well(S.SUSPENDING, S.RELEASING)], [
        S.SUSPENDING, S.RELEASING, S.SUSPENDED]),
    "a suspended actor is resumed": (SUSPENDED, [RUN, SUCCESS[S.ASSIGNED]], [S.ASSIGNED, S.CREATING]),
    "a failed actor is activated": (FAILED, [RUN_NOW], [S.ASSIGNED]),
    "a refused suspend is thawed and runs on": (running(CPU), [SUSPEND, REFUSE_SUSPEND, e.Thawed()], [
        S.SUSPENDING, S.THAWING, S.RUNNING]),
    "a failed suspend is thawed and runs on": (running(CPU), [SUSPEND, FAIL, e.Thawed()], [
        S.SUSPENDING, S.THAWING, S.RUNNING]),
    "a suspend that hangs is thawed and runs on": (running(CPU), [SUSPEND, LATE, e.Thawed()], [
        S.SUSPENDING, S.THAWING, S.RUNNING]),
    "a suspend that kills the sandbox fails": (SUSPENDING, [FAIL_DEAD, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a sandbox that dies while it is saved fails": (SUSPENDING, [DIED, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a thaw that fails ends in Failed": (THAWING, [FAIL, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a thaw that hangs ends in Failed": (THAWING, [LATE, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a refused restore of a CPU actor goes straight back to Suspended": (
        climbed(restored_from(OLD), S.RESTORING), [REFUSE_RESTORE], [S.SUSPENDED]),
    "a refused restore of a GPU actor gives its grant back first": (
        climbed(GPU_RESTORE, S.RESTORING), [REFUSE_RESTORE, WELL_GONE_ORIGIN_BAD], [S.ROLLING_BACK, S.SUSPENDED]),
    "a restore that fails returns to the snapshot that still verifies": (
        climbed(restored_from(OLD), S.RESTORING), [FAIL, WELL_GONE_ORIGIN_GOOD], [S.ROLLING_BACK, S.SUSPENDED]),
    "a restore that fails on a damaged snapshot fails": (
        climbed(restored_from(OLD), S.RESTORING), [FAIL, WELL_GONE_ORIGIN_BAD], [S.ROLLING_BACK, S.FAILED]),
    "a cold start that fails fails": (climbed(CPU, S.CREATING), [FAIL, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a sandbox that dies while it is verified fails": (
        climbed(CPU, S.VERIFYING), [DIED, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a running sandbox that dies fails": (running(CPU), [DIED, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "one container of two may end": (running(CPU), [exited("one", 7)], [S.RUNNING]),
    "all containers that end with 0 complete the actor": (
        running(CPU), [exited("one", 0), exited("two", 0), e.TornDown()], [S.RUNNING, S.STOPPING, S.TERMINATED]),
    "a container that fails last fails the actor": (
        running(CPU), [exited("one", 0), exited("two", 7), WELL_GONE], [S.RUNNING, S.ROLLING_BACK, S.FAILED]),
    "a container that failed first fails the actor at its end": (
        running(CPU), [exited("two", 7), exited("one", 0), WELL_GONE], [S.RUNNING, S.ROLLING_BACK, S.FAILED]),
    "with OnFailure a failure is tried again": (
        running(RETRYING), [exited("one", 7), exited("two", 0), WELL_GONE, e.BackoffElapsed()],
        [S.RUNNING, S.ROLLING_BACK, S.BACKING_OFF, S.ASSIGNED]),
    "with OnFailure a completion is a completion": (
        running(RETRYING), [exited("one", 0), exited("two", 0)], [S.RUNNING, S.STOPPING]),
    "an actor may complete before it is verified": (
        climbed(CPU, S.VERIFYING), [exited("one", 0), exited("two", 0)], [S.VERIFYING, S.STOPPING]),
    "an actor may fail before it is verified": (
        climbed(CPU, S.VERIFYING), [exited("one", 0), exited("two", 1)], [S.VERIFYING, S.ROLLING_BACK]),
    "an actor that completes while it is saved completes when it is thawed": (
        SUSPENDING, [exited("one", 0), exited("two", 0), REFUSE_SUSPEND, e.Thawed()],
        [S.SUSPENDING, S.SUSPENDING, S.THAWING, S.STOPPING]),
    "an actor that fails while it is saved fails when it is thawed": (
        SUSPENDING, [exited("one", 0), exited("two", 7), REFUSE_SUSPEND, e.Thawed()],
        [S.SUSPENDING, S.SUSPENDING, S.THAWING, S.ROLLING_BACK]),
    "a suspended actor is stopped": (SUSPENDED, [STOP, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "a failed actor is stopped": (FAILED, [STOP, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "a running actor is stopped": (running(CPU), [STOP_NOW, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "an actor that is being saved is stopped": (SUSPENDING, [STOP, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "an actor that is being thawed is stopped": (THAWING, [STOP, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "a stop while Releasing waits for Suspended": (RELEASING, [STOP, e.SandboxReleased(), e.TornDown()], [
        S.RELEASING, S.SUSPENDED, S.STOPPING, S.TERMINATED]),
    "a stop while BackingOff gives the grant back": (BACKING_OFF, [STOP, WELL_GONE], [S.ROLLING_BACK, S.TERMINATED]),
    "a stop that fails is ended by a rollback": (STOPPING, [FAIL, WELL_GONE], [S.ROLLING_BACK, S.TERMINATED]),
    "a stop that hangs is ended by a rollback": (STOPPING, [LATE, WELL_GONE], [S.ROLLING_BACK, S.TERMINATED]),
    "an end whose cleanup fails is Failed and can be stopped again": (
        STOPPING, [FAIL, FAIL, STOP, e.TornDown()], [S.ROLLING_BACK, S.FAILED, S.STOPPING, S.TERMINATED]),
    "a suspend before Running is acted on at Running": (
        fed(CPU, SUSPEND), well(S.ASSIGNED, S.CREATING, S.VERIFYING),
        [S.CREATING, S.VERIFYING, S.RUNNING, S.SUSPENDING]),
    "Suspended first needs no step but the record": (
        attrs.evolve(CPU, origin=OLD, last_good=OLD, pending=Pending.SUSPEND), well(S.ASSIGNED), [S.SUSPENDED]),
    "a suspend of a resume that has made nothing yet goes back at once": (
        fed(restored_from(OLD), SUSPEND), well(S.ASSIGNED), [S.SUSPENDED]),
    "a drain by suspend suspends": (running(CPU), [DRAIN_SUSPEND, *well(S.SUSPENDING, S.RELEASING)], [
        S.SUSPENDING, S.RELEASING, S.SUSPENDED]),
    "a drain by suspend stops an actor that cannot be suspended": (
        running(CPU), [DRAIN_SUSPEND, REFUSE_SUSPEND, e.Thawed(), e.TornDown()],
        [S.SUSPENDING, S.THAWING, S.RUNNING, S.STOPPING, S.TERMINATED]),
    "a drain by stop stops": (running(CPU), [DRAIN_STOP, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "a drain before Running rolls back": (climbed(CPU, S.CREATING), [DRAIN_SUSPEND, WELL_GONE], [
        S.ROLLING_BACK, S.FAILED]),
    "a drain of a resume returns to the snapshot": (
        climbed(restored_from(OLD), S.RESTORING), [DRAIN_STOP, WELL_GONE_ORIGIN_GOOD], [S.ROLLING_BACK, S.SUSPENDED]),
    "a drain ends the tries": (BACKING_OFF, [DRAIN_SUSPEND, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a drain while thawing suspends once more, then stops": (
        THAWING, [DRAIN_SUSPEND, e.Thawed(), REFUSE_SUSPEND, e.Thawed()],
        [S.THAWING, S.RUNNING, S.SUSPENDING, S.THAWING, S.RUNNING, S.STOPPING]),
    "a drain whose time is over stops also what is being suspended": (
        running(CPU), [DRAIN_SUSPEND, DRAIN_STOP_NOW, e.TornDown()], [S.SUSPENDING, S.STOPPING, S.TERMINATED]),
    "a drain whose time is over stops also what is being thawed": (
        THAWING, [DRAIN_STOP_NOW, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "a lost GPU fails a running actor": (running(GPU), [LOST, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a lost GPU fails an actor on its way up": (climbed(GPU, S.INJECTING), [LOST, WELL_GONE], [
        S.ROLLING_BACK, S.FAILED]),
    "a lost GPU does not keep an actor from being suspended": (
        GPU_SUSPENDING, [LOST, *well(S.SUSPENDING, S.RELEASING)], [S.SUSPENDING, S.RELEASING, S.SUSPENDED]),
    "a GPU lost while saving fails the actor once it is thawed": (
        GPU_SUSPENDING, [LOST, REFUSE_SUSPEND, e.Thawed(), WELL_GONE],
        [S.SUSPENDING, S.THAWING, S.ROLLING_BACK, S.FAILED]),
    "a lost GPU ends the tries": (BACKING_OFF, [LOST, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a higher generation while Stopping begins anew": (STOPPING, [RUN, e.TornDown()], [S.STOPPING, S.TERMINATED]),
    "a running actor that is found alive runs on": (running(CPU), [ALIVE], [S.RUNNING]),
    "a running actor that is found half alive fails": (running(CPU), [HALF_ALIVE, WELL_GONE], [
        S.ROLLING_BACK, S.FAILED]),
    "a running actor that is found dead fails": (running(CPU), [DEAD, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "an actor that was being saved and is found alive is thawed": (SUSPENDING, [ALIVE, e.Thawed()], [
        S.THAWING, S.RUNNING]),
    "an actor that was being released is released": (RELEASING, [DEAD, e.SandboxReleased()], [
        S.RELEASING, S.SUSPENDED]),
    "an actor that was being thawed is thawed": (THAWING, [ALIVE, e.Thawed()], [S.THAWING, S.RUNNING]),
    "an actor that was being thawed and is dead fails": (THAWING, [DEAD, WELL_GONE], [S.ROLLING_BACK, S.FAILED]),
    "a stop that was under way is completed": (STOPPING, [HALF_ALIVE, WELL_GONE], [S.ROLLING_BACK, S.TERMINATED]),
    "a release that fails is Suspended all the same": (RELEASING, [FAIL], [S.SUSPENDED]),
    "what a failed release left behind is undone before a resume": (
        fed(RELEASING, FAIL), [RUN, WELL_GONE_ORIGIN_GOOD], [S.ROLLING_BACK, S.SUSPENDED, S.ASSIGNED]),
    "what a failed rollback left behind is undone before a new try": (
        fed(running(CPU), DIED, FAIL), [RUN, WELL_GONE], [S.ROLLING_BACK, S.FAILED, S.ASSIGNED]),
    "what a failed release left behind is undone by the next process": (
        fed(RELEASING, FAIL), [DEAD, WELL_GONE], [S.ROLLING_BACK, S.SUSPENDED]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_the_timetable(name):
    actor, events, expected = ROWS[name]
    assert path(actor, *events) == expected


WAYS_UP = [
    (state, source)
    for source in (None, OLD)
    for state in STARTING
    if state is not (S.RESTORING if source is None else S.CREATING)
]
WHY = {
    STOP: None,
    FAIL: Reason.RUNTIME_FAILED,
    LATE: Reason.STEP_DEADLINE_EXCEEDED,
    DRAIN_SUSPEND: Reason.WORKER_DRAINING,
    DEAD: Reason.SUPERVISOR_RESTARTED,
}


@pytest.mark.parametrize(("state", "source"), WAYS_UP, ids=lambda value: value.id if value is OLD else str(value))
def test_before_running_a_stop_a_failure_a_deadline_a_drain_and_a_restart_roll_back(state, source):
    actor = climbed(restored_from(source, GPU) if source else GPU, state)
    failed = S.SUSPENDED if source else S.FAILED
    for event, end in ((STOP, S.TERMINATED), (FAIL, failed), (LATE, failed), (DRAIN_SUSPEND, failed), (DEAD, failed)):
        rolling = taken(actor, event)
        assert rolling.actor.state is S.ROLLING_BACK
        kinds = [type(command) for command in rolling.commands]
        assert kinds == ([c.RollBack] if event in {FAIL, DEAD} else [c.CancelStep, c.RollBack])
        rest = settled(rolling.actor)
        assert (rest.state, rest.held) == (end, ())
        assert reason(rest) == WHY[event]


def test_five_restarts_wait_1_2_4_8_16_seconds_keep_the_grant_and_then_the_actor_fails():
    actor, delays = running(RETRYING), []
    for _ in range(5):
        actor = fed(actor, exited("one", 0), exited("two", 7))
        assert reason(actor) is Reason.CONTAINER_FAILED
        assert Resource.GRANT in actor.held
        backing_off = taken(actor, WELL_GONE)
        delays += [command.delay_s for command in backing_off.commands if isinstance(command, c.StartBackoff)]
        assert backing_off.actor.held == (Resource.GRANT,)
        again = fed(backing_off.actor, e.BackoffElapsed())
        assert again.live == ("one", "two")
        actor = running(again)
        assert actor.problem is None
    assert delays == [1, 2, 4, 8, 16]
    actor = settled(fed(actor, exited("one", 0), exited("two", 7)))
    assert (actor.state, actor.held, reason(actor)) == (S.FAILED, (), Reason.CONTAINER_FAILED)
    assert actor.problem is not None
    assert (actor.problem.subject, actor.problem.message) == ("two", "container two exited with code 7")
    assert fed(actor, RUN).tries == 0


def test_a_backoff_never_waits_longer_than_a_minute():
    assert attrs.evolve(CPU, tries=30).backoff_s == 60


def test_a_try_again_of_a_resumed_actor_starts_from_its_snapshot():
    actor = running(restored_from(HALF, RETRYING))
    assert actor.live == ("one",)
    again = fed(actor, exited("one", 7), WELL_GONE_ORIGIN_GOOD, e.BackoffElapsed())
    assert again.live == ("one",)
    assert climbed(again, S.RESTORING).origin is HALF


def test_a_failure_before_the_snapshot_still_counts_at_the_end():
    actor = running(restored_from(SOUR))
    assert path(actor, exited("one", 0)) == [S.ROLLING_BACK]
    assert reason(fed(actor, exited("one", 0))) is Reason.CONTAINER_FAILED


def test_completed_is_the_reason_of_a_completed_actor():
    assert reason(settled(fed(running(CPU), exited("one", 0), exited("two", 0)))) is Reason.COMPLETED


def test_completed_does_not_hide_that_the_cleanup_failed():
    actor = fed(running(CPU), exited("one", 0), exited("two", 0), FAIL, FAIL)
    assert (actor.state, reason(actor)) == (S.FAILED, Reason.RUNTIME_FAILED)


@pytest.mark.parametrize("actor", [running(CPU), SUSPENDING, THAWING, STOPPING, climbed(CPU, S.VERIFYING)])
def test_an_exit_of_a_stranger_or_a_second_exit_is_not_counted(actor):
    assert ignored(actor, exited("stranger", 7))
    assert ignored(fed(actor, exited("one", 0)), exited("one", 255))


def test_an_exit_is_remembered_in_every_state_in_which_containers_live():
    for actor in (running(CPU), SUSPENDING, THAWING, STOPPING, climbed(CPU, S.VERIFYING)):
        assert fed(actor, exited("one", 3)).live == ("two",)


def test_a_proven_snapshot_is_the_last_good_one_and_the_one_to_return_to():
    assert (RELEASING.last_good, RELEASING.origin, RELEASING.problem) == (PROVEN, PROVEN, None)
    counted = fed(fed(running(CPU), SUSPEND, exited("one", 0)), e.SnapshotProven(snapshot=SOUR))
    assert [fate.exit_code for fate in counted.containers] == [0, 7]


def test_a_wish_to_restore_does_not_replace_the_last_good_snapshot_but_a_restore_does():
    wished = fed(SUSPENDED, e.Activate(source=HALF), e.AssignmentRecorded())
    assert (wished.state, wished.last_good) == (S.RESTORING, PROVEN)
    assert fed(wished, REFUSE_RESTORE).last_good == PROVEN
    assert fed(wished, FAIL, WELL_GONE_ORIGIN_BAD).last_good == PROVEN
    assert fed(wished, FAIL, WELL_GONE_ORIGIN_GOOD).last_good == HALF
    assert fed(wished, e.SandboxRestored()).last_good == HALF


def test_a_sandbox_that_dies_names_the_last_good_snapshot():
    failed = settled(fed(running(fed(SUSPENDED, e.Activate(source=PROVEN))), DIED))
    assert (failed.state, reason(failed), failed.last_good) == (S.FAILED, Reason.SANDBOX_DIED, PROVEN)


def test_a_snapshot_that_was_whole_when_the_sandbox_died_is_the_last_good_one():
    died = fed(SUSPENDING, DIED)
    assert fed(died, e.RolledBack(origin=e.OriginVerdict.NONE, saved=PROVEN)).last_good == PROVEN
    assert fed(died, WELL_GONE).last_good == died.last_good


def test_a_stop_while_saving_undoes_the_unproven_files_first():
    stop = taken(GPU_SUSPENDING, STOP)
    assert stop.commands == (
        c.CancelStep(),
        c.StopContainers(undo=tuple(reversed(Resource)), grace_s=30.0),
    )


def test_could_not_thaw_names_the_first_cause():
    failed = fed(THAWING, FAIL)
    assert failed.problem is not None
    assert (failed.problem.step, failed.problem.reason) == (Step.THAW, Reason.COULD_NOT_THAW)
    assert failed.problem.message == (
        "the sandbox could not be thawed: a sample of RuntimeFailed; "
        "it was frozen because of a suspend that ended with OpenDeletedFile: a sample of OpenDeletedFile"
    )


def test_the_reason_of_a_refused_suspend_is_shown_while_it_runs_on_and_gone_after_the_next_one():
    runs_on = fed(THAWING, e.Thawed())
    assert reason(runs_on) is Reason.OPEN_DELETED_FILE
    assert fed(runs_on, SUSPEND).problem is None


def test_a_sandbox_that_dies_later_is_not_blamed_on_the_refused_suspend():
    assert reason(fed(THAWING, DIED)) is Reason.SANDBOX_DIED
    assert reason(fed(THAWING, e.Thawed(), DIED)) is Reason.SANDBOX_DIED


def test_a_lost_gpu_stays_the_cause_of_all_that_follows():
    for before in (GPU_SUSPENDING, fed(GPU_SUSPENDING, REFUSE_SUSPEND)):
        lost = fed(before, LOST)
        again = fed(lost, LOST, e.GpuLost(gpu="GPU-1", problem=problem(Reason.SANDBOX_DIED)))
        assert (again.lost_gpus, reason(again)) == (("GPU-0", "GPU-1"), Reason.GPU_LOST)
        for events in ((DIED,), (DEAD,)):
            assert reason(fed(again, *events)) is Reason.GPU_LOST
    thawed = fed(GPU_SUSPENDING, LOST, REFUSE_SUSPEND, e.Thawed())
    assert reason(thawed) is Reason.GPU_LOST


def test_an_actor_that_lost_a_gpu_while_it_was_saved_is_not_tried_again():
    actor = fed(running(RETRYING), SUSPEND, exited("one", 7), exited("two", 7), LOST, REFUSE_SUSPEND, e.Thawed())
    rest = settled(actor)
    assert (rest.state, reason(rest), rest.held) == (S.FAILED, Reason.GPU_LOST, ())
