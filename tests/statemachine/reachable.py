"""Every memory that the machine can have, found by feeding every event to every memory from the first on.

What no guard reads is folded together, else there would be far too many: see `_fold`.
"""

from __future__ import annotations

import functools
from collections import deque

import attrs

from statemachine.actor import TRIES_MAX, Actor, By, Claims, ContainerFate, Ending, Pending, Restart
from statemachine.cells import Cell, Go
from statemachine.events import Event
from statemachine.machine import Transition, begin, step
from statemachine.states import STARTING, State
from statemachine.table import TABLE
from tests.statemachine.samples import BOTH_LIVE, EVERY_EVENT, OLD


@attrs.frozen
class Move:
    """One event that one memory met; `outcome` is None where the cell is no transition."""

    actor: Actor
    event: Event
    cell: Cell
    outcome: Transition | None


def first_memories() -> list[Actor]:
    """Lives as they may begin: claiming or not, restarting or not, cold, from a snapshot, Suspended first."""
    actors = [
        Actor(state=State.ASSIGNED, claims=claims, restart=restart, containers=BOTH_LIVE)
        for claims in Claims
        for restart in Restart
    ]
    from_snapshot = [attrs.evolve(actor, origin=OLD, last_good=OLD) for actor in actors]
    asleep = [attrs.evolve(actor, pending=Pending.SUSPEND) for actor in from_snapshot]
    return [begin(actor).actor for actor in (*actors, *from_snapshot, *asleep)]


def _fold(actor: Actor) -> Actor:
    """Fold together memories that behave alike: what no guard reads in this state, or before it is set anew."""
    state = actor.state
    runs_up = state in {*STARTING, State.BACKING_OFF}
    may_fail_again = runs_up or state in {State.RUNNING, State.SUSPENDING, State.THAWING, State.ROLLING_BACK}
    tries_again = may_fail_again and actor.restart is Restart.ON_FAILURE
    counts_exits = state in {State.VERIFYING, State.RUNNING, State.SUSPENDING, State.THAWING, State.STOPPING}
    origin = actor.origin if actor.origin is None or (actor.origin.exited and runs_up) else OLD
    return attrs.evolve(
        actor,
        problem=None,
        last_good=OLD if actor.origin else None,
        origin=origin,
        tries=min(actor.tries, 1) if actor.tries < TRIES_MAX else TRIES_MAX,
        restart=actor.restart if may_fail_again else Restart.NEVER,
        asked_by=actor.asked_by if runs_up or tries_again else By.DOCUMENT,
        ending=actor.ending if state is State.ROLLING_BACK else Ending.FAILED,
        containers=_alike(actor) if counts_exits else BOTH_LIVE,
        lost_gpus=actor.lost_gpus if state in {State.SUSPENDING, State.THAWING, State.ROLLING_BACK} else (),
    )


def _alike(actor: Actor) -> tuple[ContainerFate, ...]:
    """The same fates whichever container has which."""
    codes = sorted((fate.exit_code for fate in actor.containers), key=lambda code: (code is not None, code))
    return tuple(attrs.evolve(fate, exit_code=code) for fate, code in zip(BOTH_LIVE, codes, strict=True))


def cell_of(actor: Actor, event: Event) -> Cell:
    return next(cell for cell in TABLE[actor.state, type(event)] if cell.when.holds(actor, event))


@functools.cache
def moves() -> tuple[Move, ...]:
    """Every memory with every event, once."""
    start = first_memories()
    seen = set(start)
    queue = deque(start)
    found: list[Move] = []
    while queue:
        actor = queue.popleft()
        for event in EVERY_EVENT:
            cell = cell_of(actor, event)
            outcome = step(actor, event) if isinstance(cell, Go) else None
            assert outcome is None or isinstance(outcome, Transition)
            found.append(Move(actor, event, cell, outcome))
            if outcome is not None:
                folded = _fold(outcome.actor)
                if folded not in seen:
                    seen.add(folded)
                    queue.append(folded)
    return tuple(found)


@functools.cache
def memories() -> tuple[Actor, ...]:
    """Every memory, once."""
    return tuple(dict.fromkeys(move.actor for move in moves()))
