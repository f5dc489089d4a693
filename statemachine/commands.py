"""Commands: what is to be done. The supervisor performs them in order and feeds back what became of it.

A command that names a step starts that step; the others are small and done at once. `CREATES` says what a command may
have made from the moment it is given: the machine holds it until it is undone.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from .actor import OnDifference, Pending, Resource, Snapshot
from .problem import Step

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen
class RecordAssignment:
    """Write the assignment durably."""


@attrs.frozen
class DetectGpus:
    """Look at the pod's GPUs."""


@attrs.frozen
class GenerateSpec:
    """Get the worker's CDI spec (single-flight)."""


@attrs.frozen
class PartitionGpus:
    """Take the grant; one that was kept over a backoff stays as it is."""


@attrs.frozen
class InjectEdits:
    """Write every config.json with its devices."""


@attrs.frozen
class CreateSandbox:
    """Start sandbox and containers cold."""


@attrs.frozen(kw_only=True)
class RestoreSandbox:
    """Restore sandbox and containers."""

    snapshot: Snapshot
    on_difference: OnDifference = OnDifference.REFUSE


@attrs.frozen
class VerifyContainers:
    """Look that they live, and probe."""


@attrs.frozen
class WatchContainers:
    """Watch the sandbox and every container for their exits until the sandbox is ended."""


@attrs.frozen
class SaveSnapshot:
    """Freeze, look, save, prove."""


@attrs.frozen(kw_only=True)
class ReleaseSandbox:
    """After a proven snapshot, end the sandbox and undo the rest, in this order."""

    undo: tuple[Resource, ...]


@attrs.frozen(kw_only=True)
class Thaw:
    """Resume the sandbox once, and undo what was not proven."""

    undo: tuple[Resource, ...]


@attrs.frozen(kw_only=True)
class RollBack:
    """End the sandbox at once and undo the rest, in this order; then look at the snapshot to go back to, if to any."""

    undo: tuple[Resource, ...]


@attrs.frozen(kw_only=True)
class StopContainers:
    """TERM, grace, KILL; then undo, in this order."""

    undo: tuple[Resource, ...]
    grace_s: float


@attrs.frozen(kw_only=True)
class StartBackoff:
    """Wait before the next try."""

    delay_s: float


@attrs.frozen
class CancelStep:
    """Cancel the running step and wait until its own cleanup is done."""


@attrs.frozen(kw_only=True)
class FollowPending:
    """Feed the kept request again, now that the actor rests."""

    pending: Pending


@attrs.frozen
class BeginAnew:
    """A higher generation came while this life was ending: begin the next one, as its document says."""


Command = (
    RecordAssignment | DetectGpus | GenerateSpec | PartitionGpus | InjectEdits | CreateSandbox | RestoreSandbox
    | VerifyContainers | WatchContainers | SaveSnapshot | ReleaseSandbox | Thaw | RollBack | StopContainers
    | StartBackoff | CancelStep | FollowPending | BeginAnew
)  # fmt: skip
COMMANDS: Final[tuple[type, ...]] = (
    RecordAssignment, DetectGpus, GenerateSpec, PartitionGpus, InjectEdits, CreateSandbox, RestoreSandbox,
    VerifyContainers, WatchContainers, SaveSnapshot, ReleaseSandbox, Thaw, RollBack, StopContainers, StartBackoff,
    CancelStep, FollowPending, BeginAnew,
)  # fmt: skip

CREATES: Final[Mapping[type, tuple[Resource, ...]]] = MappingProxyType(
    {
        PartitionGpus: (Resource.GRANT,),
        InjectEdits: (Resource.BUNDLES,),
        CreateSandbox: (Resource.BUNDLES, Resource.SANDBOX),
        RestoreSandbox: (Resource.BUNDLES, Resource.SANDBOX),
        SaveSnapshot: (Resource.UNPROVEN_SNAPSHOT,),
    }
)

STEP_OF_COMMAND: Final[Mapping[type, Step]] = MappingProxyType(
    {
        RecordAssignment: Step.ASSIGN,
        DetectGpus: Step.DETECT,
        GenerateSpec: Step.GENERATE,
        PartitionGpus: Step.PARTITION,
        InjectEdits: Step.INJECT,
        CreateSandbox: Step.CREATE,
        RestoreSandbox: Step.RESTORE,
        VerifyContainers: Step.VERIFY,
        SaveSnapshot: Step.SUSPEND,
        ReleaseSandbox: Step.RELEASE,
        Thaw: Step.THAW,
        RollBack: Step.TEARDOWN,
        StopContainers: Step.TEARDOWN,
        StartBackoff: Step.SUPERVISE,
    }
)
"""Commands that start a step; a state has at most one such command running."""
