"""What happens to actors as spans: one for each activation, from its first step on, and below it one for each step.

It hears what logs and metrics hear, and uses their words. A span is made when it is over, and handed to whoever exports
it; nothing is waited for here. Of an activation that an earlier life of the worker began the span begins with its take
over.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from statemachine import events as e
from statemachine.commands import STEP_OF_COMMAND
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State
from supervisor.observing import Ending, Nobody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.ports import Wall
    from statemachine.actor import Actor
    from statemachine.commands import Command
    from statemachine.events import Event
    from statemachine.problem import Problem
    from supervisor.worker import Worker

EVENTS_MAX: Final = 128
"""Of one span, as OpenTelemetry has it; what comes after them is left out."""
WITHOUT_SANDBOX: Final = INACTIVE | {State.BACKING_OFF}
"""Between two activations."""
AS_IT_SHOULD_BE: Final = frozenset({Reason.COMPLETED, Reason.WORKER_DRAINING})
"""Reasons that say why an actor ended, and are no failure of it."""

Value = str | int
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class SpanEvent:
    """Something that happened while a span lasted."""

    name: str
    at_s: float
    attributes: Mapping[str, Value] = _NOTHING


@attrs.frozen(kw_only=True)
class Span:
    """A span that is over.

    Attributes:
        name: `activation`, or that of a step.
        trace: 128 bits; an activation and its steps share it.
        id: 64 bits.
        parent: the id of the activation's; None for one that stands alone.
        begin_s: seconds since 1970 UTC.
        end_s: likewise.
        attributes: by the words of the log.
        events: what happened meanwhile, in order.
        error: why it failed; None when it did not.
    """

    name: str
    trace: int
    id: int
    parent: int | None
    begin_s: float
    end_s: float
    attributes: Mapping[str, Value]
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None


class SpanExport(Protocol):
    """Where spans go."""

    def put(self, span: Span) -> None:
        """Take one; never waits, and loses it rather than that."""
        ...

    async def finish(self) -> None:
        """Wait until all of them are told, or given up. Whoever cannot wait so long cancels it."""
        ...


@attrs.define(kw_only=True)
class _Activation:
    """One whose end has not come."""

    trace: int
    id: int
    begin_s: float
    attributes: dict[str, Value]
    events: list[SpanEvent] = attrs.field(factory=list)

    def add(self, event: SpanEvent) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append(event)


class Tracing(Nobody):
    """Hears of every actor, for whoever exports spans. `worker` is whose actors they are."""

    def __init__(self, export: SpanExport, wall: Wall) -> None:
        self.export = export
        self.worker: Worker | None = None
        self._wall = wall
        self._open: dict[str, _Activation] = {}

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:
        """An actor is somewhere else, or has begun."""
        if event is None:
            self._open.pop(uid, None)  # of a life that a fault of ours has ended
        if uid not in self._open and actor.state not in WITHOUT_SANDBOX:
            self._open[uid] = self._begun(uid, actor)
        activation = self._open.get(uid)
        if activation is None:
            return
        if event is not None and not isinstance(event, e.ANSWERS):
            activation.add(self._seen(before, actor, event))
        if actor.state in WITHOUT_SANDBOX:
            del self._open[uid]
            self._end(activation, actor)

    def step_ended(self, uid: str, command: Command, ending: Ending, elapsed_s: float, problem: Problem | None) -> None:
        """A step has ended."""
        activation, end_s = self._open.get(uid), self._wall.now_s()
        step = str(STEP_OF_COMMAND.get(type(command), Step.SUPERVISE))
        begin_s = end_s - elapsed_s
        if activation is not None:  # the calendar may have been set meanwhile
            begin_s = min(max(begin_s, activation.begin_s), end_s)
        self.export.put(
            Span(
                name=step,
                trace=self._trace() if activation is None else activation.trace,
                id=self._id(),
                parent=None if activation is None else activation.id,
                begin_s=begin_s,
                end_s=end_s,
                attributes={**self._whose(uid), "step": step, "outcome": str(ending), **_of_problem(problem)},
                error=None if problem is None else problem.message,
            )
        )

    def troubled(self, uid: str, problem: Problem, count: int) -> None:
        """A trouble came so often with which an actor runs on."""
        if (activation := self._open.get(uid)) is not None:
            attributes = {**_of_problem(problem), "message": problem.message, "count": count}
            activation.add(SpanEvent(name="notice", at_s=self._wall.now_s(), attributes=attributes))

    def _begun(self, uid: str, actor: Actor) -> _Activation:
        origin = actor.origin
        snapshot: dict[str, Value] = {} if origin is None else {"snapshot": origin.id}
        return _Activation(
            trace=self._trace(),
            id=self._id(),
            begin_s=self._wall.now_s(),
            attributes={**self._whose(uid), **snapshot},
        )

    def _end(self, activation: _Activation, actor: Actor) -> None:
        problem = actor.problem
        has_failed = (
            problem is not None and problem.reason not in AS_IT_SHOULD_BE and actor.state is not State.TERMINATED
        )
        about: dict[str, Value] = {"to": str(actor.state)}
        if problem is not None:
            about |= {"step": str(problem.step), **_of_problem(problem)}
        self.export.put(
            Span(
                name="activation",
                trace=activation.trace,
                id=activation.id,
                parent=None,
                begin_s=activation.begin_s,
                end_s=max(self._wall.now_s(), activation.begin_s),
                attributes={**activation.attributes, **about},
                events=tuple(activation.events),
                error=problem.message if problem is not None and has_failed else None,
            )
        )

    def _seen(self, before: Actor, actor: Actor, event: Event) -> SpanEvent:
        attributes: dict[str, Value] = {"from": str(before.state), "to": str(actor.state)}
        match event:
            case e.ContainerExited(container=container, exit_code=exit_code):
                attributes |= {"container": container, "exit_code": exit_code}
            case e.SnapshotUploaded(snapshot=snapshot):
                attributes["snapshot"] = snapshot
        problem: Problem | None = getattr(event, "problem", None)
        if problem is not None:
            attributes |= {"step": str(problem.step), **_of_problem(problem), "message": problem.message}
        return SpanEvent(name=type(event).__name__, at_s=self._wall.now_s(), attributes=attributes)

    def _whose(self, uid: str) -> dict[str, Value]:
        life = None if self.worker is None else self.worker.find(uid)
        generation: dict[str, Value] = {} if life is None else {"generation": life.assignment.generation}
        return {"actor": uid, **generation}

    def _id(self) -> int:
        return int(self._wall.fresh_id(), 16)

    def _trace(self) -> int:
        return int(self._wall.fresh_id() + self._wall.fresh_id(), 16)


def _of_problem(problem: Problem | None) -> dict[str, Value]:
    return {} if problem is None else {"reason": str(problem.reason), "subject": problem.subject}
