"""Events: facts that are fed to the machine. Each is an attrs class, whose name is its `type` in journal and traces."""

from __future__ import annotations

import enum
from typing import Final

import attrs

from .actor import By, OnDifference, OnDrain, Snapshot
from .problem import Problem


class SandboxFate(enum.StrEnum):
    """What a failed step says of the sandbox it worked on."""

    ALIVE = "Alive"
    DEAD = "Dead"


class OriginVerdict(enum.StrEnum):
    """What a rollback found when it looked at the snapshot that the activation came from."""

    NONE = "None"
    GOOD = "Good"
    DAMAGED = "Damaged"


class Finding(enum.StrEnum):
    """What a restarted supervisor found of an actor."""

    ALIVE = "Alive"
    HALF = "Half"
    DEAD = "Dead"


# ---- requests


@attrs.frozen(kw_only=True)
class Activate:
    """Running is wanted. `source` is the snapshot to restore; None is a cold start."""

    source: Snapshot | None = None
    by: By = By.DOCUMENT
    on_difference: OnDifference = OnDifference.REFUSE


@attrs.frozen(kw_only=True)
class SuspendRequested:
    """Suspended is wanted."""

    by: By = By.DOCUMENT


@attrs.frozen(kw_only=True)
class StopRequested:
    """Terminated is wanted."""

    by: By = By.DOCUMENT


@attrs.frozen(kw_only=True)
class DrainRequested:
    """The worker is shutting down."""

    on_drain: OnDrain
    problem: Problem


# ---- a step ended well


@attrs.frozen
class AssignmentRecorded:
    """The assignment is on disk."""


@attrs.frozen
class GpusDetected:
    """The inventory is known and holds what is claimed."""


@attrs.frozen
class SpecGenerated:
    """A verified CDI spec is at hand."""


@attrs.frozen
class GpusPartitioned:
    """The grant is made."""


@attrs.frozen
class EditsInjected:
    """Every config.json is written with its devices."""


@attrs.frozen
class SandboxCreated:
    """Sandbox and containers were started cold."""


@attrs.frozen
class SandboxRestored:
    """Sandbox and containers were restored; every call exited 0."""


@attrs.frozen
class ContainersVerified:
    """The containers are alive (or done) and every wakeup probe has answered."""


@attrs.frozen(kw_only=True)
class SnapshotProven:
    """The files are whole and durable and the manifest is written; at least one application container lives in it."""

    snapshot: Snapshot


@attrs.frozen
class SandboxReleased:
    """After a proven snapshot: sandbox ended, everything of the activation is gone."""


@attrs.frozen
class Thawed:
    """The sandbox runs again; the unproven files are gone."""


@attrs.frozen(kw_only=True)
class RolledBack:
    """All that the activation held is undone.

    Attributes:
        origin: what became of the snapshot that it came from.
        saved: a snapshot that was whole when the sandbox died, before the machine had heard of it; it is good.
    """

    origin: OriginVerdict
    saved: Snapshot | None = None


@attrs.frozen
class TornDown:
    """The containers were stopped, all that the activation held is undone."""


@attrs.frozen
class BackoffElapsed:
    """The delay before the next try is over."""


# ---- a step ended badly


@attrs.frozen(kw_only=True)
class RestoreRefused:
    """The snapshot must not be restored here; nothing was created."""

    problem: Problem


@attrs.frozen(kw_only=True)
class SuspendRefused:
    """The actor must not be suspended now; nothing was saved."""

    problem: Problem


@attrs.frozen(kw_only=True)
class StepFailed:
    """The running step failed; its own undo is done."""

    problem: Problem
    sandbox: SandboxFate = SandboxFate.ALIVE


@attrs.frozen(kw_only=True)
class DeadlineExceeded:
    """The state lasted longer than it may."""

    problem: Problem


# ---- the world changed by itself


@attrs.frozen(kw_only=True)
class ContainerExited:
    """An application container ended (128 + n after signal n)."""

    container: str
    exit_code: int


@attrs.frozen(kw_only=True)
class SandboxDied:
    """The sandbox ended although nobody asked for it."""

    problem: Problem


@attrs.frozen(kw_only=True)
class GpuLost:
    """A GPU that the actor was granted is gone or unhealthy."""

    gpu: str
    problem: Problem


@attrs.frozen(kw_only=True)
class Recovered:
    """The supervisor was restarted and has looked at what is left of the actor."""

    finding: Finding
    problem: Problem


@attrs.frozen
class CleanupDue:
    """What a cleanup that failed has left is to be undone again."""


@attrs.frozen(kw_only=True)
class SnapshotUploaded:
    """A snapshot of the actor is whole in its store: its manifest, which comes last, is there."""

    snapshot: str
    uri: str


@attrs.frozen(kw_only=True)
class UploadFailed:
    """A snapshot of the actor did not reach its store; it is tried again."""

    snapshot: str
    problem: Problem


Event = (
    Activate | SuspendRequested | StopRequested | DrainRequested
    | AssignmentRecorded | GpusDetected | SpecGenerated | GpusPartitioned | EditsInjected | SandboxCreated
    | SandboxRestored | ContainersVerified | SnapshotProven | SandboxReleased | Thawed | RolledBack | TornDown
    | BackoffElapsed | RestoreRefused | SuspendRefused | StepFailed | DeadlineExceeded
    | ContainerExited | SandboxDied | GpuLost | Recovered | CleanupDue | SnapshotUploaded | UploadFailed
)  # fmt: skip

REQUESTS: Final = (Activate, SuspendRequested, StopRequested, DrainRequested)
ANSWERS: Final = (
    AssignmentRecorded, GpusDetected, SpecGenerated, GpusPartitioned, EditsInjected, SandboxCreated, SandboxRestored,
    ContainersVerified, SnapshotProven, SandboxReleased, Thawed, RolledBack, TornDown, BackoffElapsed,
)  # fmt: skip
FAILURES: Final = (RestoreRefused, SuspendRefused, StepFailed, DeadlineExceeded)
OBSERVATIONS: Final = (ContainerExited, SandboxDied, GpuLost, Recovered, CleanupDue, SnapshotUploaded, UploadFailed)
EVENTS: Final[tuple[type, ...]] = REQUESTS + ANSWERS + FAILURES + OBSERVATIONS
