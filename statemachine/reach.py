"""Whether a state can still come by itself, that is, without a new request from outside. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

import attrs

from .actor import By, OnDrain, Pending, Snapshot
from .commands import FollowPending
from .events import (
    ANSWERS,
    Activate,
    ContainerExited,
    DeadlineExceeded,
    DrainRequested,
    OriginVerdict,
    RestoreRefused,
    RolledBack,
    SandboxDied,
    SandboxFate,
    SnapshotProven,
    StepFailed,
    StopRequested,
    SuspendRefused,
    SuspendRequested,
)
from .machine import Transition, step
from .problem import Problem, Step
from .reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .actor import Actor
    from .events import AssignmentRecorded, Event
    from .states import State

_PROBLEM: Final = Problem(step=Step.SUPERVISE, reason=Reason.INTERNAL, subject="", message="", hint="")
_SNAPSHOT: Final = Snapshot(id="", uri="", created_at=0.0)
_CONTAINERS_MAX: Final = 2
"""Two containers behave as any number does: one that is not the last, and the last."""


def can_come(actor: Actor, wanted: State) -> bool:
    """Whether `wanted` may be reached from here by what steps answer and what happens by itself.

    A request that is kept is counted in, a new one is not. The present state itself counts as reached.
    """
    return wanted in _reachable(_reduced(actor))


def _reduced(actor: Actor) -> Actor:
    """The same behaviour with as little memory as possible, so that answers can be shared."""
    live = [fate for fate in actor.containers if fate.exit_code is None][:_CONTAINERS_MAX]
    failed = [fate for fate in actor.containers if fate.exit_code][:1]
    done = [fate for fate in actor.containers if fate.exit_code == 0][:1]
    return attrs.evolve(
        actor,
        containers=tuple(attrs.evolve(fate, name=str(place)) for place, fate in enumerate([*live, *failed, *done])),
        grace_s=0.0,
        probe_s=0.0,
        origin=_SNAPSHOT if actor.origin else None,
        last_good=_SNAPSHOT if actor.last_good else None,
        problem=None,
        lost_gpus=("lost",) if actor.lost_gpus else (),
    )


@lru_cache(maxsize=4096)
def _reachable(start: Actor) -> frozenset[State]:
    seen = {start}
    open_ = [start]
    while open_:
        actor = open_.pop()
        for event in _happenings(actor):
            for new in _after(actor, event):
                if new not in seen:
                    seen.add(new)
                    open_.append(new)
    return frozenset(actor.state for actor in seen)


def _after(actor: Actor, event: Event) -> Iterator[Actor]:
    outcome = step(actor, event)
    if not isinstance(outcome, Transition):
        return
    new = attrs.evolve(outcome.actor, problem=None)
    yield new
    for command in outcome.commands:
        if isinstance(command, FollowPending):
            yield from _after(new, _followed(command.pending))


def _followed(pending: Pending) -> Event:
    match pending:
        case Pending.RUN:
            return Activate(source=_SNAPSHOT, by=By.DOCUMENT)
        case Pending.SUSPEND:
            return SuspendRequested(by=By.DOCUMENT)
        case Pending.TERMINATE:
            return StopRequested(by=By.DOCUMENT)
        case Pending.DRAIN_BY_SUSPEND:
            return DrainRequested(on_drain=OnDrain.SUSPEND, problem=_PROBLEM)
        case Pending.DRAIN_BY_STOP:
            return DrainRequested(on_drain=OnDrain.STOP, problem=_PROBLEM)


def _happenings(actor: Actor) -> Iterator[Event]:
    """Every event that is no request, in every variant that a guard tells apart."""
    for answer in ANSWERS:
        if answer is SnapshotProven:
            yield SnapshotProven(snapshot=_SNAPSHOT)
        elif answer is RolledBack:
            verdicts = (OriginVerdict.GOOD, OriginVerdict.DAMAGED) if actor.origin else (OriginVerdict.NONE,)
            yield from (RolledBack(origin=verdict) for verdict in verdicts)
        else:
            yield cast("type[AssignmentRecorded]", answer)()  # every other answer is a bare word
    yield from (StepFailed(problem=_PROBLEM, sandbox=fate) for fate in SandboxFate)
    yield DeadlineExceeded(problem=_PROBLEM)
    yield RestoreRefused(problem=_PROBLEM)
    yield SuspendRefused(problem=_PROBLEM)
    yield SandboxDied(problem=_PROBLEM)
    for name in actor.live:
        yield ContainerExited(container=name, exit_code=0)
        yield ContainerExited(container=name, exit_code=1)
