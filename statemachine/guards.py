"""Guards: named pure predicates over what the machine remembers and the event at hand.

Rows of one (state, event) pair have guards of which exactly one holds, whatever the actor; a test walks the product.
Guards combine with `&` and `~`, and their names with them, so that the printed table reads like the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from .actor import TRIES_MAX, Actor, By, Claims, Ending, OnDrain, Pending, Resource, Restart
from .events import (
    Activate,
    ContainerExited,
    DrainRequested,
    Event,
    Finding,
    OriginVerdict,
    Recovered,
    RolledBack,
    SandboxFate,
    StepFailed,
    StopRequested,
    SuspendRequested,
    UploadFailed,
)
from .reasons import Reason

Predicate = Callable[[Actor, Event], bool]


@attrs.frozen
class Guard:
    """A predicate with a name; `joined` holds the predicates of which all must hold when the name joins several."""

    name: str
    holds: Predicate
    joined: tuple[Predicate, ...] = ()

    def __and__(self, other: Guard) -> Guard:
        parts = (*(self.joined or (self.holds,)), *(other.joined or (other.holds,)))
        return Guard(f"{self.name} & {other.name}", _all_of(parts), joined=parts)

    def __or__(self, other: Guard) -> Guard:
        return Guard(
            f"({self.name} | {other.name})", lambda actor, event: self.holds(actor, event) or other.holds(actor, event)
        )

    def __invert__(self) -> Guard:
        name = f"({self.name})" if self.joined else self.name
        return Guard(f"~{name}", lambda actor, event: not self.holds(actor, event))


def _all_of(parts: tuple[Predicate, ...]) -> Predicate:
    """Whether all hold, in this order. Flat, as a step asks several, and calls within calls are what that costs."""

    def holds(actor: Actor, event: Event) -> bool:
        for part in parts:  # noqa: SIM110 - a generator would cost more than what it asks
            if not part(actor, event):
                return False
        return True

    return holds


def _exits(actor: Actor, event: Event) -> tuple[int | None, ...]:
    """Exit codes of all containers once the event is counted in; None for one that lives."""
    counted = event if isinstance(event, ContainerExited) else None
    return tuple(
        counted.exit_code if counted and fate.exit_code is None and fate.name == counted.container else fate.exit_code
        for fate in actor.containers
    )


def _all_exited(actor: Actor, event: Event) -> bool:
    exits = _exits(actor, event)
    return bool(exits) and None not in exits


def _restarts(actor: Actor, _event: Event) -> bool:
    return actor.restart is Restart.ON_FAILURE and actor.tries < TRIES_MAX


def _overlaps(actor: Actor, event: Event) -> bool:
    requests = (Activate, SuspendRequested, StopRequested)
    return actor.asked_by is By.COMMAND and isinstance(event, requests) and event.by is By.COMMAND


def _lives(actor: Actor, event: Event) -> bool:
    return isinstance(event, ContainerExited) and event.container in actor.live


def _upload_is_news(actor: Actor, event: Event) -> bool:
    if not isinstance(event, UploadFailed) or actor.last_good is None or event.snapshot != actor.last_good.id:
        return False
    told = actor.problem
    return told is None or (told.reason is Reason.SNAPSHOT_NOT_UPLOADED and told != event.problem)


Always: Final = Guard("Always", lambda _actor, _event: True)
ClaimsGpu: Final = Guard("ClaimsGpu", lambda actor, _event: actor.claims is Claims.GPUS)
FromSnapshot: Final = Guard("FromSnapshot", lambda actor, _event: actor.origin is not None)
ContainerLives: Final = Guard("ContainerLives", _lives)
LastContainer: Final = Guard("LastContainer", _all_exited)
AllZero: Final = Guard(
    "AllZero", lambda actor, event: all(code == 0 for code in _exits(actor, event) if code is not None)
)
Restarts: Final = Guard("Restarts", _restarts)
ByCommand: Final = Guard(
    "ByCommand",
    lambda _actor, event: isinstance(event, Activate | SuspendRequested | StopRequested) and event.by is By.COMMAND,
)
Overlaps: Final = Guard("Overlaps", _overlaps)
DrainSuspends: Final = Guard(
    "DrainSuspends", lambda _actor, event: isinstance(event, DrainRequested) and event.on_drain is OnDrain.SUSPEND
)
DrainHurries: Final = Guard(
    "DrainHurries", lambda _actor, event: isinstance(event, DrainRequested) and event.on_drain is OnDrain.STOP_NOW
)
HoldsGrant: Final = Guard("HoldsGrant", lambda actor, _event: Resource.GRANT in actor.held)
HoldsNothing: Final = Guard("HoldsNothing", lambda actor, _event: not actor.held)
GpuIsLost: Final = Guard("GpuIsLost", lambda actor, _event: bool(actor.lost_gpus))
SandboxAlive: Final = Guard(
    "SandboxAlive", lambda _actor, event: isinstance(event, StepFailed) and event.sandbox is SandboxFate.ALIVE
)
FoundAlive: Final = Guard(
    "FoundAlive", lambda _actor, event: isinstance(event, Recovered) and event.finding is Finding.ALIVE
)
HasPending: Final = Guard("HasPending", lambda actor, _event: actor.pending is not None)
SuspendPending: Final = Guard("SuspendPending", lambda actor, _event: actor.pending is Pending.SUSPEND)
RunPending: Final = Guard("RunPending", lambda actor, _event: actor.pending is Pending.RUN)
TerminatePending: Final = Guard("TerminatePending", lambda actor, _event: actor.pending is Pending.TERMINATE)
DrainPending: Final = Guard(
    "DrainPending", lambda actor, _event: actor.pending in {Pending.DRAIN_BY_SUSPEND, Pending.DRAIN_BY_STOP}
)
HasSuccessor: Final = Guard("HasSuccessor", lambda actor, _event: actor.pending in {Pending.RUN, Pending.SUSPEND})
EndsTerminated: Final = Guard("EndsTerminated", lambda actor, _event: actor.ending is Ending.TERMINATED)
EndsBackingOff: Final = Guard("EndsBackingOff", lambda actor, _event: actor.ending is Ending.BACKING_OFF)
EndsFailed: Final = Guard("EndsFailed", lambda actor, _event: actor.ending is Ending.FAILED)
EndsSuspended: Final = Guard("EndsSuspended", lambda actor, _event: actor.ending is Ending.SUSPENDED)
EndsAtOrigin: Final = Guard("EndsAtOrigin", lambda actor, _event: actor.ending is Ending.ORIGIN)
UploadIsNews: Final = Guard("UploadIsNews", _upload_is_news)
OriginGood: Final = Guard(
    "OriginGood", lambda _actor, event: isinstance(event, RolledBack) and event.origin is OriginVerdict.GOOD
)
