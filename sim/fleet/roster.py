"""What a fleet remembers of an actor, and how many there are in which way."""

from __future__ import annotations

import enum
import math
from typing import Final

import attrs

from sim.fleet.schedulers import Claim
from sim.traces.records import Assignment
from statemachine.states import INACTIVE, State


class Wish(enum.Enum):
    """What is wanted of an actor."""

    RUN = enum.auto()
    SUSPEND = enum.auto()
    END = enum.auto()


class Standing(enum.Enum):
    """How an actor is counted."""

    WAITING = enum.auto()
    """It is to run, and no worker has room."""
    PASSING = enum.auto()
    RUNNING = enum.auto()
    SUSPENDED = enum.auto()
    FAILED = enum.auto()
    APART = enum.auto()
    """It has no life anywhere, and none is wanted now: it may come back from the store."""
    GONE = enum.auto()
    """It has ended, and is counted no more."""

    # By identity: it is a key whenever somebody moves, and the hash of an enum is Python code.
    __hash__ = object.__hash__


@attrs.define(eq=False)
class Listed:
    """One actor.

    Attributes:
        assignment: what it is. claim: what it needs of a worker.
        wish: what is wanted of it.
        worker: where its life is; None when it has none.
        state: of that life, as it was told last.
        has_room: whether that worker's room is promised to it.
        holds: whether something of an activation is left there although it rests.
        is_activating: an activation was ordered, and has not come to Running.
        asked_s: when it was wanted Running.
        busy_s: how long it is busy once it runs; is_asked: whether that is with a request that came since it last ran.
        busy_until_s: until when it works on what it was asked for.
        local_on: the worker that has its newest snapshot; is_stored: whether a store has that one.
        was_stored: whether a store has any, maybe an older one.
        has_run: whether it ever came to Running, so that a cold start would lose something.
        tries: activations that failed since it was asked for.
        line: the claim with which it waits for room; waits_since: its turn.
        home_until_s: so long it waits for the worker that has its snapshot, if it waits for that one.
        retries_at_s: when it is tried again, if it rests until then.
        victims: actors that are being suspended so that it gets room.
        saved_for: whom it is being suspended for.
        has_timer: whether a look at its idleness is to come.
        successor: a higher generation that came while it was ending.
    """

    assignment: Assignment
    claim: Claim
    wish: Wish = Wish.RUN
    worker: str | None = None
    state: State | None = None
    has_room: bool = False
    holds: bool = False
    is_activating: bool = False
    asked_s: float = 0.0
    busy_s: float = 0.0
    is_asked: bool = False
    busy_until_s: float = 0.0
    local_on: str | None = None
    is_stored: bool = False
    was_stored: bool = False
    has_run: bool = False
    tries: int = 0
    line: Claim | None = None
    waits_since: int = 0
    home_until_s: float = math.inf
    retries_at_s: float = math.inf
    victims: set[str] = attrs.field(factory=set)
    saved_for: str | None = None
    has_timer: bool = False
    successor: Assignment | None = None
    standing: Standing = Standing.APART

    @property
    def name(self) -> str:
        """Its uid."""
        return self.assignment.actor

    @property
    def in_store(self) -> bool:
        """Whether it can be brought back from a store without losing more than it has lost already."""
        return self.is_stored or (self.was_stored and self.local_on is None)

    @property
    def is_active(self) -> bool:
        """Whether a life of it runs, or is on its way up or down."""
        return self.state is not None and self.state not in INACTIVE

    @property
    def is_working(self) -> bool:
        """Whether it has work until it ends by itself: such an actor is never idle."""
        return self.assignment.for_s is not None

    def standing_now(self) -> Standing:
        """How it is counted now."""
        if self.line is not None:
            return Standing.WAITING
        return _STANDINGS.get(self.state, Standing.PASSING)


_STANDINGS: Final = {
    State.RUNNING: Standing.RUNNING,
    State.SUSPENDED: Standing.SUSPENDED,
    State.FAILED: Standing.FAILED,
    None: Standing.APART,
}


def claim_of(assignment: Assignment) -> Claim:
    """What an actor needs of a worker."""
    return Claim(
        gpus=assignment.gpus,
        models=assignment.models,
        cpu_milli=assignment.cpu_milli or 0,
        memory_bytes=assignment.memory_bytes or 0,
        worker=assignment.worker,
    )


@attrs.define(eq=False)
class Counts:
    """How many actors there are, by standing, and how many of all claim a GPU; `changes` tells whether it is news."""

    by_standing: dict[Standing, int] = attrs.field(factory=lambda: dict.fromkeys(Standing, 0))
    claiming: int = 0
    changes: int = 0

    def came(self, one: Listed) -> None:
        """An actor is there."""
        self.changes += 1
        one.standing = one.standing_now()
        self.by_standing[one.standing] += 1
        self.claiming += one.claim.gpus > 0

    def changed(self, one: Listed) -> None:
        """Something about it may have changed."""
        # As `standing_now`, which would be called half as often as the machine is.
        now = Standing.WAITING if one.line is not None else _STANDINGS.get(one.state, Standing.PASSING)
        was = one.standing
        if now is not was and was is not Standing.GONE:
            self.changes += 1
            self.by_standing[was] -= 1
            self.by_standing[now] += 1
            one.standing = now

    def went(self, one: Listed) -> None:
        """It is there no more."""
        self.changes += 1
        self.by_standing[one.standing] -= 1
        self.claiming -= one.claim.gpus > 0
        one.standing = Standing.GONE
