"""Sample memories and events, shared by the tests of the machine."""

from __future__ import annotations

from typing import Final

import attrs

from statemachine import events as e
from statemachine.actor import Actor, By, Claims, ContainerFate, OnDrain, Pending, Resource, Snapshot
from statemachine.commands import FollowPending
from statemachine.events import EVENTS, Event, Finding, OriginVerdict, SandboxFate
from statemachine.machine import Ignored, Transition, step
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import PASSING, State


def problem(reason: Reason, at: Step = Step.SUPERVISE) -> Problem:
    return Problem(step=at, reason=reason, subject="thing", message=f"a sample of {reason}")


OLD: Final = Snapshot(id="old", uri="file:///old", created_at=1.0)
"""Everything lived in it."""
HALF: Final = Snapshot(id="half", uri="file:///half", created_at=2.0, exited=(("two", 0),))
"""One container had ended well before it was taken."""
SOUR: Final = Snapshot(id="sour", uri="file:///sour", created_at=3.0, exited=(("two", 7),))
"""One container had ended badly before it was taken."""
PROVEN: Final = Snapshot(id="proven", uri="file:///proven", created_at=4.0)

BOTH_LIVE: Final = (ContainerFate(name="one"), ContainerFate(name="two"))
CPU: Final = Actor(state=State.ASSIGNED, containers=BOTH_LIVE)
GPU: Final = Actor(state=State.ASSIGNED, containers=BOTH_LIVE, claims=Claims.GPUS)

VARIANTS: Final[dict[type, tuple[Event, ...]]] = {
    e.Activate: tuple(e.Activate(source=source, by=by) for source in (None, OLD, HALF, SOUR) for by in By),
    e.SuspendRequested: tuple(e.SuspendRequested(by=by) for by in By),
    e.StopRequested: tuple(e.StopRequested(by=by) for by in By),
    e.DrainRequested: tuple(e.DrainRequested(on_drain=on, problem=problem(Reason.WORKER_DRAINING)) for on in OnDrain),
    e.SnapshotProven: (e.SnapshotProven(snapshot=PROVEN),),
    e.RolledBack: (
        *(e.RolledBack(origin=verdict) for verdict in OriginVerdict),
        e.RolledBack(origin=OriginVerdict.NONE, saved=PROVEN),
    ),
    e.RestoreRefused: (e.RestoreRefused(problem=problem(Reason.SNAPSHOT_INCOMPATIBLE, Step.RESTORE)),),
    e.SuspendRefused: (e.SuspendRefused(problem=problem(Reason.OPEN_DELETED_FILE, Step.SUSPEND)),),
    e.StepFailed: tuple(e.StepFailed(problem=problem(Reason.RUNTIME_FAILED), sandbox=fate) for fate in SandboxFate),
    e.DeadlineExceeded: (e.DeadlineExceeded(problem=problem(Reason.STEP_DEADLINE_EXCEEDED)),),
    e.ContainerExited: tuple(
        e.ContainerExited(container=name, exit_code=code) for name in ("one", "two", "stranger") for code in (0, 7)
    ),
    e.SandboxDied: (e.SandboxDied(problem=problem(Reason.SANDBOX_DIED)),),
    e.GpuLost: (e.GpuLost(gpu="GPU-0", problem=problem(Reason.GPU_LOST)),),
    e.Recovered: tuple(e.Recovered(finding=found, problem=problem(Reason.SUPERVISOR_RESTARTED)) for found in Finding),
}
VARIANTS[e.SnapshotUploaded] = tuple(
    e.SnapshotUploaded(snapshot=each, uri=f"s3://bucket/{each}") for each in ("old", "stranger")
)
VARIANTS[e.UploadFailed] = tuple(
    e.UploadFailed(snapshot=each, problem=problem(Reason.SNAPSHOT_NOT_UPLOADED)) for each in ("old", "stranger")
)
VARIANTS.update({kind: (kind(),) for kind in EVENTS if kind not in VARIANTS})
EVERY_EVENT: Final = tuple(event for kind in EVENTS for event in VARIANTS[kind])

(FAIL, FAIL_DEAD), (LATE,) = VARIANTS[e.StepFailed], VARIANTS[e.DeadlineExceeded]
(REFUSE_RESTORE,), (REFUSE_SUSPEND,) = VARIANTS[e.RestoreRefused], VARIANTS[e.SuspendRefused]
(DIED,), (LOST,) = VARIANTS[e.SandboxDied], VARIANTS[e.GpuLost]
DRAIN_SUSPEND, DRAIN_STOP, DRAIN_STOP_NOW = VARIANTS[e.DrainRequested]
ALIVE, HALF_ALIVE, DEAD = VARIANTS[e.Recovered]
WELL_GONE: Final = e.RolledBack(origin=OriginVerdict.NONE)
WELL_GONE_ORIGIN_GOOD: Final = e.RolledBack(origin=OriginVerdict.GOOD)
WELL_GONE_ORIGIN_BAD: Final = e.RolledBack(origin=OriginVerdict.DAMAGED)
SAVED: Final = e.SnapshotProven(snapshot=PROVEN)
SUSPEND, SUSPEND_NOW = VARIANTS[e.SuspendRequested]
STOP, STOP_NOW = VARIANTS[e.StopRequested]
RUN, RUN_NOW = e.Activate(), e.Activate(by=By.COMMAND)

SUCCESS: Final[dict[State, Event]] = {
    State.ASSIGNED: e.AssignmentRecorded(),
    State.DETECTING: e.GpusDetected(),
    State.GENERATING: e.SpecGenerated(),
    State.PARTITIONING: e.GpusPartitioned(),
    State.INJECTING: e.EditsInjected(),
    State.CREATING: e.SandboxCreated(),
    State.RESTORING: e.SandboxRestored(),
    State.VERIFYING: e.ContainersVerified(),
    State.SUSPENDING: SAVED,
    State.RELEASING: e.SandboxReleased(),
    State.THAWING: e.Thawed(),
    State.STOPPING: e.TornDown(),
    State.ROLLING_BACK: WELL_GONE_ORIGIN_GOOD,
    State.BACKING_OFF: e.BackoffElapsed(),
}
"""What the step of each passing state says when it ends well."""


def exited(name: str, code: int) -> Event:
    return e.ContainerExited(container=name, exit_code=code)


def followed(command: FollowPending, actor: Actor) -> Event:
    """The event that a kept request becomes."""
    match command.pending:
        case Pending.RUN:
            return e.Activate(source=actor.last_good)
        case Pending.SUSPEND:
            return SUSPEND
        case Pending.TERMINATE:
            return STOP
        case Pending.DRAIN_BY_SUSPEND:
            return DRAIN_SUSPEND
        case Pending.DRAIN_BY_STOP:
            return DRAIN_STOP


def taken(actor: Actor, event: Event) -> Transition:
    """The transition of an event that must be taken."""
    outcome = step(actor, event)
    assert isinstance(outcome, Transition), f"{event} in {actor.state}: {outcome}"
    return outcome


def fed(actor: Actor, *events: Event) -> Actor:
    """The memory after events that must all be taken; a kept request is followed at once, as the supervisor does."""
    for event in events:
        transition = taken(actor, event)
        actor = transition.actor
        for command in transition.commands:
            if isinstance(command, FollowPending):
                actor = fed_if_taken(actor, followed(command, actor))
    return actor


def fed_if_taken(actor: Actor, event: Event) -> Actor:
    outcome = step(actor, event)
    assert isinstance(outcome, Transition | Ignored), f"a kept request must not be refused: {outcome}"
    return fed(actor, event) if isinstance(outcome, Transition) else actor


def climbed(actor: Actor, to: State) -> Actor:
    """The memory of an actor whose steps all succeed until it is in the state."""
    for _ in range(12):
        if actor.state is to:
            return actor
        actor = fed(actor, SUCCESS[actor.state])
    raise AssertionError(f"{to} is not on the way from {actor.state}")


def settled(actor: Actor, answers: dict[State, Event] | None = None, limit: int = 40) -> Actor:
    """The resting or final memory that is reached when each step gives the answer named for its state."""
    for _ in range(limit):
        if actor.state not in PASSING:
            return actor
        actor = fed(actor, {**SUCCESS, **(answers or {})}[actor.state])
    raise AssertionError(f"no rest within {limit} answers; now {actor}")


def running(actor: Actor) -> Actor:
    return climbed(actor, State.RUNNING)


def restored_from(snapshot: Snapshot, actor: Actor = CPU) -> Actor:
    """The actor on its way up from a snapshot, in Assigned."""
    asleep = attrs.evolve(actor, state=State.SUSPENDED, origin=snapshot, last_good=snapshot)
    return fed(asleep, e.Activate(source=snapshot))


EVERYTHING: Final = tuple(Resource)
