"""`step`: fold one event into what is remembered of an actor. Pure: same inputs, same outputs, no side effect."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import attrs

from .actor import Actor, Resource
from .catalogue import CATALOGUE
from .cells import Go, Ignore
from .commands import Command, RecordAssignment
from .problem import Problem, Step
from .reasons import Reason
from .states import State
from .table import TABLE
from .updates import fates_after

if TYPE_CHECKING:
    from .events import Event


@attrs.frozen(kw_only=True)
class Transition:
    """The event was taken: the new memory, and what is to be done, in this order."""

    actor: Actor
    commands: tuple[Command, ...]


@attrs.frozen(kw_only=True)
class Ignored:
    """The event changes nothing, on purpose."""

    why: str


@attrs.frozen(kw_only=True)
class Refused:
    """The event changes nothing, and whoever asked is told why."""

    problem: Problem


Outcome = Transition | Ignored | Refused

_ORDER: Final = {resource: place for place, resource in enumerate(Resource)}


def step(actor: Actor, event: Event) -> Outcome:
    """Fold one event into the actor.

    Args:
        actor: what is remembered.
        event: a fact.

    Returns: a Transition with the new memory and the commands to perform in order; or Ignored or Refused, which change
        nothing.
    """
    for cell in TABLE[actor.state, type(event)]:
        if cell.when.holds(actor, event):
            break
    else:
        raise AssertionError(f"no row of ({actor.state}, {type(event).__name__}) holds: {actor}")
    if not isinstance(cell, Go):
        if isinstance(cell, Ignore):
            return Ignored(why=cell.why)
        return Refused(problem=_refusal(actor, event, cell.reason))
    new = actor
    for update in cell.remember:
        new = update.apply(new, event)
    # Commands see what the row remembers, except a pending request, which the row may both follow and forget.
    seen = new if new.pending is actor.pending else new.but(pending=actor.pending)
    commands = tuple([order.make(seen) for order in cell.orders])
    held = _in_order(new.held, cell.makes) if cell.makes else new.held
    return Transition(actor=new.but(state=cell.target, held=held), commands=commands)


def begin(actor: Actor) -> Transition:
    """The first transition of a life: Assigned, and the assignment is to be recorded.

    Args:
        actor: what is known of it. `origin` is the snapshot to start from, and `pending` is Suspend when Suspended is
            wanted first; such an origin is verified, so it is `last_good`, too.
    """
    first = actor.but(state=State.ASSIGNED, containers=fates_after(actor, actor.origin))
    return Transition(actor=first, commands=(RecordAssignment(),))


@functools.cache  # as many as there are ways to hold some of four resources
def _in_order(held: tuple[Resource, ...], made: frozenset[Resource]) -> tuple[Resource, ...]:
    """What is held once the commands are given, in the order of making."""
    return tuple(sorted({*held, *made}, key=_ORDER.__getitem__))


def _refusal(actor: Actor, event: Event, reason: Reason) -> Problem:
    return Problem(
        step=Step.ADMISSION,
        reason=reason,
        subject=str(actor.state),
        message=f"{type(event).__name__} is refused in state {actor.state}: {CATALOGUE[reason].sentence}",
    )
