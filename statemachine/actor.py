"""What the machine remembers of one actor: the state and the few facts that guards and commands need."""

from __future__ import annotations

import enum
from typing import Any, Final

import attrs

from .problem import Problem
from .states import DEADLINE_S, State

TRIES_MAX: Final = 5
"""Restarts after a failure under restartPolicy OnFailure, per request to run."""
BACKOFF_MAX_S: Final = 60.0
FETCH_S: Final = 3600.0
"""How much longer the step may take that fetches a snapshot from its store: some 350 GiB at 100 MiB a second."""


class Claims(enum.StrEnum):
    """Whether any container claims a GPU."""

    NOTHING = "Nothing"
    GPUS = "Gpus"


class Restart(enum.StrEnum):
    """restartPolicy, as the machine needs it."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"


class By(enum.StrEnum):
    """Who asked: a document of a new generation, or a command."""

    DOCUMENT = "Document"
    COMMAND = "Command"


class OnDifference(enum.StrEnum):
    """What becomes of a restore that the verdict speaks against."""

    REFUSE = "Refuse"
    FORCE = "Force"
    """It is tried all the same, where what differs can be passed over at all."""


class OnDrain(enum.StrEnum):
    """What a drain does to a running actor; a worker is told one of the first two."""

    SUSPEND = "Suspend"
    STOP = "Stop"
    STOP_NOW = "StopNow"
    """As Stop, and one that is being suspended is not waited for: the time for that is over."""


class Pending(enum.StrEnum):
    """A request that is kept until the actor rests, and then acted on."""

    RUN = "Run"
    SUSPEND = "Suspend"
    TERMINATE = "Terminate"
    DRAIN_BY_SUSPEND = "DrainBySuspend"
    DRAIN_BY_STOP = "DrainByStop"


class Ending(enum.StrEnum):
    """Where RollingBack leads to."""

    FAILED = "Failed"
    ORIGIN = "Origin"
    """Suspended when the activation came from a snapshot that still verifies, else Failed."""
    SUSPENDED = "Suspended"
    """Suspended in any case: a restore was refused, or what a failed release had left behind is undone."""
    BACKING_OFF = "BackingOff"
    TERMINATED = "Terminated"


class Resource(enum.StrEnum):
    """What an activation may hold, in the order of making; it is undone in reverse."""

    GRANT = "Grant"
    BUNDLES = "Bundles"
    SANDBOX = "Sandbox"
    UNPROVEN_SNAPSHOT = "UnprovenSnapshot"

    # As that of a state, and for the same reason.
    __hash__ = str.__hash__


@attrs.frozen(kw_only=True)
class Snapshot:
    """A snapshot with a manifest, known to be whole.

    Attributes:
        id: unique per actor.
        uri: where it is.
        created_at: seconds since 1970 UTC.
        exited: containers that had ended before it was taken, with their exit codes; they are not restored.
        stored_uri: where it is in a store outside the worker; None while it is in none.
    """

    id: str
    uri: str
    created_at: float
    exited: tuple[tuple[str, int], ...] = ()
    stored_uri: str | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was found in a store, from which it must be fetched before it can be restored."""
        return self.uri == self.stored_uri


@attrs.frozen(kw_only=True)
class ContainerFate:
    """One application container; `exit_code` is None while it lives (128 + n after signal n)."""

    name: str
    exit_code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether it has exited."""
        return self.exit_code is not None


@attrs.frozen(kw_only=True, slots=False)
class Actor:
    """The machine's whole memory of one actor. Equal memories behave equally.

    Attributes:
        state: where it is.
        claims: whether the GPU steps are taken.
        restart: restartPolicy.
        grace_s: terminationGracePeriodSeconds.
        probe_s: the longest wakeup probe, and the hook before it; 0 when there is none.
        containers: fate of each application container, in the order of declaration.
        origin: the snapshot that this activation is restored from; None is a cold start. From
            SnapshotProven on it is the proven one.
        last_good: the snapshot that was last proven, restored or found good; a wish to restore does not replace it.
        pending: a request kept for later.
        asked_by: who asked for the activation.
        on_difference: whether that request wanted the snapshot restored whatever differs here.
        ending: where a rollback leads to.
        held: what is or may be there and must be undone, in the order of making.
        lost_gpus: granted GPUs that were lost while nothing could be done about it.
        tries: restarts already made.
        problem: the first cause of what went wrong; None when all is well.
    """

    state: State
    claims: Claims = Claims.NOTHING
    restart: Restart = Restart.NEVER
    grace_s: float = 30.0
    probe_s: float = 0.0
    containers: tuple[ContainerFate, ...] = ()
    origin: Snapshot | None = None
    last_good: Snapshot | None = None
    pending: Pending | None = None
    asked_by: By = By.DOCUMENT
    on_difference: OnDifference = OnDifference.REFUSE
    ending: Ending = Ending.FAILED
    held: tuple[Resource, ...] = ()
    lost_gpus: tuple[str, ...] = ()
    tries: int = 0
    problem: Problem | None = None

    def but(self, **changes: Any) -> Actor:
        """The same memory, but for these attributes.

        As attrs.evolve, in a fifth of its time: a step does this several times, and a simulated fleet little else. This
        is the one place that fills a new object without the constructor; no attribute has a converter or a validator.

        Raises:
            TypeError: there is no such attribute.
        """
        new = object.__new__(Actor)
        memory = new.__dict__
        memory.update(self.__dict__)
        memory.update(changes)
        if len(memory) != _ATTRIBUTES:
            raise TypeError(f"an actor has no {', '.join(sorted(changes.keys() - self.__dict__.keys()))}")
        return new

    @property
    def deadline_s(self) -> float | None:
        """Seconds that the present state may last; None in resting and final states."""
        base_s = DEADLINE_S.get(self.state)
        return None if base_s is None else base_s + self._extra_s

    @property
    def _extra_s(self) -> float:
        """Seconds that the actor's own settings, or what it must fetch, add to the deadline of the present state."""
        match self.state:
            case State.VERIFYING:
                return self.probe_s
            case State.STOPPING:
                return self.grace_s
            case State.BACKING_OFF:
                return self.backoff_s
            case self._fetching if self.origin is not None and self.origin.is_elsewhere:
                return FETCH_S
            case _:
                return 0.0

    @property
    def _fetching(self) -> State:
        """The first state that needs the files of a snapshot, or as much as its manifest."""
        return State.INJECTING if self.claims is Claims.GPUS else State.RESTORING

    @property
    def backoff_s(self) -> float:
        """Seconds to wait before the restart that `tries` counts: 1, 2, 4, … at most 60."""
        return min(2.0 ** max(self.tries - 1, 0), BACKOFF_MAX_S)

    @property
    def live(self) -> tuple[str, ...]:
        """Names of the containers that have not exited."""
        return tuple(fate.name for fate in self.containers if not fate.ended)


_ATTRIBUTES: Final = len(attrs.fields(Actor))
