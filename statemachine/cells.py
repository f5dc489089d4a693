"""What a cell of the table can be, and the few words that rows are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs

from . import commands as c
from . import guards as g
from .actor import Actor, Ending, Resource
from .events import EVENTS
from .guards import Guard
from .reasons import Reason
from .states import State
from .updates import Update

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen
class Order:
    """How a row makes one command out of what is remembered: `kind` is the command's class."""

    kind: type
    make: Callable[[Actor], c.Command]


@attrs.frozen(kw_only=True)
class Go:
    """A transition."""

    when: Guard
    target: State
    orders: tuple[Order, ...]
    remember: tuple[Update, ...]
    makes: frozenset[Resource] = attrs.field(init=False, eq=False, repr=False)
    """What these orders may make: it is held from now on."""

    @makes.default
    def _what_the_orders_make(self) -> frozenset[Resource]:
        return frozenset(resource for order in self.orders for resource in c.CREATES.get(order.kind, ()))


@attrs.frozen(kw_only=True)
class Ignore:
    """Nothing happens, on purpose."""

    when: Guard
    why: str


@attrs.frozen(kw_only=True)
class Refuse:
    """Nothing happens, and the asker is told."""

    when: Guard
    reason: Reason


Cell = Go | Ignore | Refuse


def _plain(kind: type) -> Order:
    command = kind()  # it says nothing of the actor, so that one will do for all
    return Order(kind, lambda _actor: command)


def _undo(actor: Actor) -> tuple[Resource, ...]:
    """All that is held, newest first."""
    return tuple(reversed(actor.held))


def _undo_for_ending(actor: Actor) -> tuple[Resource, ...]:
    """All that is held, newest first, but the grant stays over a backoff."""
    kept = {Resource.GRANT} if actor.ending is Ending.BACKING_OFF else set()
    return tuple(held for held in reversed(actor.held) if held not in kept)


def _restore(actor: Actor) -> c.Command:
    if actor.origin is None:
        message = "a restore needs an origin; the FromSnapshot guard stands before every row that orders one"
        raise ValueError(message)
    return c.RestoreSandbox(snapshot=actor.origin, on_difference=actor.on_difference)


def _follow(actor: Actor) -> c.Command:
    if actor.pending is None:
        message = "there is nothing to follow; the HasPending guard stands before every row that orders it"
        raise ValueError(message)
    return c.FollowPending(pending=actor.pending)


CANCEL = _plain(c.CancelStep)
RECORD = _plain(c.RecordAssignment)
DETECT = _plain(c.DetectGpus)
GENERATE = _plain(c.GenerateSpec)
PARTITION = _plain(c.PartitionGpus)
INJECT = _plain(c.InjectEdits)
CREATE = _plain(c.CreateSandbox)
RESTORE = Order(c.RestoreSandbox, _restore)
VERIFY = _plain(c.VerifyContainers)
WATCH = _plain(c.WatchContainers)
SAVE = _plain(c.SaveSnapshot)
RELEASE = Order(c.ReleaseSandbox, lambda actor: c.ReleaseSandbox(undo=_undo(actor)))
THAW = Order(
    c.Thaw, lambda actor: c.Thaw(undo=tuple(held for held in _undo(actor) if held is Resource.UNPROVEN_SNAPSHOT))
)
ROLL_BACK = Order(c.RollBack, lambda actor: c.RollBack(undo=_undo_for_ending(actor)))
STOP = Order(c.StopContainers, lambda actor: c.StopContainers(undo=_undo(actor), grace_s=actor.grace_s))
BACKOFF = Order(c.StartBackoff, lambda actor: c.StartBackoff(delay_s=actor.backoff_s))
FOLLOW = Order(c.FollowPending, _follow)
ANEW = _plain(c.BeginAnew)


class Timetable:
    """The cells as they are written down, row by row; `finish` gives the total table."""

    def __init__(self) -> None:
        self._cells: dict[tuple[State, type], list[Cell]] = {}

    def go(  # a row needs all of it
        self,
        states: State | Iterable[State],
        event: type,
        target: State,
        *orders: Order,
        when: Guard = g.Always,
        remember: tuple[Update, ...] = (),
    ) -> None:
        """A transition."""
        self._put(states, event, Go(when=when, target=target, orders=orders, remember=remember))

    def stay(self, states: State | Iterable[State], event: type, *remember: Update, when: Guard = g.Always) -> None:
        """Only something is remembered; the step that runs goes on."""
        for state in _each(states):
            self._put(state, event, Go(when=when, target=state, orders=(), remember=remember))

    def ignore(
        self, states: State | Iterable[State], events: type | Iterable[type], why: str, when: Guard = g.Always
    ) -> None:
        """Nothing happens, on purpose."""
        for event in (events,) if isinstance(events, type) else tuple(events):
            self._put(states, event, Ignore(when=when, why=why))

    def refuse(self, states: State | Iterable[State], event: type, reason: Reason, when: Guard = g.Always) -> None:
        """Nothing happens, and the asker is told."""
        self._put(states, event, Refuse(when=when, reason=reason))

    def ignore_rest(self, events: Iterable[type], why: str) -> None:
        """The cells of these events that no row above names."""
        for event in events:
            self.ignore([state for state in State if (state, event) not in self._cells], event, why)

    def finish(self) -> Mapping[tuple[State, type], tuple[Cell, ...]]:
        """The table.

        Raises:
            ValueError: a (state, event) pair has no cell.
        """
        missing = [
            f"({state}, {event.__name__})" for state in State for event in EVENTS if (state, event) not in self._cells
        ]
        if missing:
            raise ValueError(f"the table has no cell for {', '.join(missing)}")
        return MappingProxyType({key: tuple(rows) for key, rows in self._cells.items()})

    def _put(self, states: State | Iterable[State], event: type, cell: Cell) -> None:
        for state in _each(states):
            self._cells.setdefault((state, event), []).append(cell)


def _each(states: State | Iterable[State]) -> tuple[State, ...]:
    return (states,) if isinstance(states, State) else tuple(states)
