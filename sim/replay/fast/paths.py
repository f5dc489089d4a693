"""The ways that lives take through the machine: what it says of one memory and one event, it is asked only once.

`step` is pure, and equal memories behave equally, so the answer can be kept. Most lives of a fleet take the same few
ways: they begin alike, their events are alike, and none of it names the actor. What is unlike (a trouble has words of
its own) is asked anew each time. With what is kept there is what the kernel needs of a transition, worked out once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.replay.accounting import NO_TROUBLE
from sim.replay.fast.lives import memory_of
from statemachine.actor import Actor, Resource, Snapshot
from statemachine.commands import Command
from statemachine.events import Activate, Event
from statemachine.machine import Ignored, Refused, Transition, begin, step
from statemachine.states import STARTING, State

if TYPE_CHECKING:
    from sim.fleet.config import Actors
    from sim.replay.fast.kernel import Kernel
    from sim.replay.fast.lives import Life
    from sim.traces.records import Assignment, Container
    from statemachine.reasons import Reason

KEPT_MAX: Final = 50_000
"""Answers; a trace in which no two lives are alike is to take no more memory than another."""
REUSED_MAX: Final = 5_000
"""Events."""
_UNTOLD: Final = frozenset(STARTING)
"""States on the way up: the fleet knows that it is on its way, and needs to hear of it only where it gets to."""

Performer = "Callable[[Kernel, Life, Any], None]"
Arrival = "Callable[[Kernel, Life, State], None]"


@attrs.define(eq=False)
class Point:
    """A memory at which lives stand, how long its state may last, and the ways on from there that were asked for."""

    memory: Actor
    limit_s: float
    ways: dict[int, Way | Ignored | Refused] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Way:
    """A transition, as the kernel takes it.

    Attributes:
        after: where it leads. state: the state there. was: the state before; None where a life begins.
        event: the name of what happened.
        ends_step: whether the step of the state before is over.
        orders: what is done, with whom to do it.
        ends_grant: whether GPUs that were held are not any more.
        failure: the word for a trouble that is new. reason: that of the trouble, new or not.
        arrival: what follows there, if the state is another one.
        tells: whether the fleet is told. holds: what it is told of.
    """

    after: Point
    state: State
    was: State | None
    event: str
    ends_step: bool
    orders: tuple[tuple[Callable[[Kernel, Life, Any], None], Command], ...]
    ends_grant: bool
    failure: str | None
    reason: Reason | None
    arrival: Callable[[Kernel, Life, State], None] | None
    tells: bool
    holds: bool


class Paths:
    """All ways of one replay.

    Args:
        perform: who does a command, by its class.
        arrive: what follows in a state.
        kept_max: how many answers are kept; 0 asks the machine each time.
    """

    def __init__(
        self,
        perform: Mapping[type, Callable[[Kernel, Life, Any], None]],
        arrive: Mapping[State, Callable[[Kernel, Life, State], None]],
        kept_max: int = KEPT_MAX,
    ) -> None:
        self._perform = perform
        self._arrive = arrive
        self._kept_max = kept_max
        self._kept = 0
        self._events: dict[Event, Event] = {}
        self._reused: set[int] = set()
        self._points: dict[Actor, Point] = {}
        self._begun: dict[tuple[tuple[Container, ...], bool, Snapshot | None], Way] = {}

    def reused(self, event: Event) -> Event:
        """The one object for all equal events, so that what follows from it is kept; only for what names no actor."""
        found = self._events.get(event)
        if found is not None:
            return found
        if len(self._events) < REUSED_MAX:
            self._events[event] = event
            self._reused.add(id(event))  # which stays its own, as the event does
        return event

    def begun(self, assignment: Assignment, actors: Actors, origin: Snapshot | None) -> Way:
        """How a life begins."""
        key = assignment.containers, assignment.gpus > 0, origin
        found = self._begun.get(key)
        if found is None:
            memory = memory_of(assignment, actors, origin)
            found = self._way(None, "Assignment", begin(memory), self._point)
            if len(self._begun) < self._kept_max:
                self._begun[key] = found
        return found

    def on(self, point: Point, event: Event) -> Way | Ignored | Refused:
        """What the machine says."""
        found = point.ways.get(id(event))
        if found is not None:
            return found
        outcome = step(point.memory, event)
        if isinstance(outcome, Transition):
            # Whoever begins anew has forgotten its troubles, and is like others again.
            make = self._point if isinstance(event, Activate) else _new_point
            answer: Way | Ignored | Refused = self._way(point.memory, type(event).__name__, outcome, make)
        else:
            answer = outcome
        if id(event) in self._reused and self._kept < self._kept_max:
            self._kept += 1
            point.ways[id(event)] = answer
        return answer

    def _point(self, memory: Actor) -> Point:
        found = self._points.get(memory)
        if found is None:
            found = _new_point(memory)
            if len(self._points) < self._kept_max:
                self._points[memory] = found
        return found

    def _way(self, before: Actor | None, event: str, transition: Transition, make: Callable[[Actor], Point]) -> Way:
        after = transition.actor
        was = None if before is None else before.state
        moves = was is not after.state
        held = () if before is None else before.held
        told_before = None if before is None else before.problem
        problem = after.problem
        reason = None if problem is None else problem.reason
        is_new = reason is not None and reason not in NO_TROUBLE and problem is not told_before
        return Way(
            after=make(after),
            state=after.state,
            was=was,
            event=event,
            ends_step=was is not None and (moves or bool(transition.commands)),
            orders=tuple((self._perform[type(command)], command) for command in transition.commands),
            ends_grant=Resource.GRANT in held and Resource.GRANT not in after.held,
            failure=str(reason) if is_new else None,
            reason=reason,
            arrival=self._arrive.get(after.state) if moves and was is not None else None,
            tells=moves and was is not None and after.state not in _UNTOLD,
            holds=bool(after.held),
        )


def _new_point(memory: Actor) -> Point:
    limit_s = memory.deadline_s
    return Point(memory, math.inf if limit_s is None else limit_s)
