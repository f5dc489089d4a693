"""What a fleet is told, and what it orders. Both are values: engines carry the one in and perform the other."""

from __future__ import annotations

import enum
from typing import TypeAlias

import attrs

from sim.traces.records import Assignment, FaultRecord, Record, WorkerAdd
from statemachine.reasons import Reason
from statemachine.states import State

# ---- facts, beside the records of the trace


@attrs.frozen
class WorkerReady:
    """A worker takes on actors from now on."""

    at_s: float
    worker: str


@attrs.frozen
class WorkerGone:
    """A worker is gone, with everything on it that no store has."""

    at_s: float
    worker: str


@attrs.frozen
class Moved:
    """An actor's life on a worker took an event.

    Attributes:
        at_s, actor, worker: when, whose, where.
        state: where it is now.
        reason: of its trouble, if it has one.
        holds: whether anything of an activation is or may be left there.
    """

    at_s: float
    actor: str
    worker: str
    state: State
    reason: Reason | None = None
    holds: bool = False


@attrs.frozen
class Uploaded:
    """The newest snapshot of an actor is whole in its store."""

    at_s: float
    actor: str
    worker: str


@attrs.frozen
class Dropped:
    """A worker has dropped its copy of an actor's snapshot; the store has one."""

    at_s: float
    actor: str
    worker: str


@attrs.frozen
class GpusUsable:
    """So many GPUs of a worker are well, whoever holds them: some were lost, or are back."""

    at_s: float
    worker: str
    gpus: int


@attrs.frozen
class Elapsed:
    """It is as late as this: whatever the fleet waits for until then is due."""

    at_s: float


Fact: TypeAlias = Record | WorkerReady | WorkerGone | Moved | Uploaded | Dropped | GpusUsable | Elapsed

# ---- orders


class SnapshotFrom(enum.StrEnum):
    """What an activation begins with."""

    COLD = "cold"
    LOCAL = "local"
    STORE = "store"


@attrs.frozen
class StartActor:
    """Begin a life of an actor on a worker that has none of it.

    Attributes:
        assignment: what it is.
        worker: where.
        snapshot_from: Cold or Store.
        asked_s: when it was asked for; it has waited for room since then.
    """

    assignment: Assignment
    worker: str
    snapshot_from: SnapshotFrom
    asked_s: float

    @property
    def actor(self) -> str:
        """Whom it is about."""
        return self.assignment.actor


@attrs.frozen
class ResumeActor:
    """Activate an actor that rests on this worker, from what `snapshot_from` says."""

    actor: str
    worker: str
    snapshot_from: SnapshotFrom
    asked_s: float


@attrs.frozen
class SuspendActor:
    """Suspend an actor."""

    actor: str
    worker: str


@attrs.frozen
class StopActor:
    """End an actor's life on a worker; or what is left of it there, when it lives elsewhere by now."""

    actor: str
    worker: str


@attrs.frozen
class AddWorker:
    """Start a worker. WorkerReady is told when it takes on actors."""

    record: WorkerAdd


@attrs.frozen
class DrainWorker:
    """Send a worker SIGTERM. RemoveWorker comes when nothing on it needs it any more, or its time is over."""

    worker: str


@attrs.frozen
class RemoveWorker:
    """Take a worker away. WorkerGone is told when it is gone."""

    worker: str


@attrs.frozen
class Inject:
    """Let a fault of the trace happen."""

    record: FaultRecord


@attrs.frozen
class ForgetActor:
    """An actor has ended: nobody needs its snapshots any more, wherever they are."""

    actor: str


Order: TypeAlias = (
    StartActor | ResumeActor | SuspendActor | StopActor | ForgetActor | AddWorker | DrainWorker | RemoveWorker | Inject
)
