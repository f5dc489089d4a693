"""What the supervisors of a run say: structlog, captured with virtual times instead of dates."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import attrs
import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

SPEAKING: Final[ContextVar[Speaker | None]] = ContextVar("speaking", default=None)
"""Whose task this is: every task of a life inherits it."""


class Speaker:
    """One life of the supervisor, as far as its voice goes; the dead say nothing.

    Args:
        incarnation: which life.
        heard_by: who takes down what is said; None is whoever has taken structlog over.
    """

    def __init__(self, incarnation: int, heard_by: Hearing | None = None) -> None:
        self.incarnation = incarnation
        self.heard_by = heard_by
        self.is_dead = False


@attrs.frozen
class Said:
    """One line of a supervisor's log.

    Attributes:
        at_s: virtual seconds.
        incarnation: which life said it; 0 is the scenario itself.
        level: `debug`, `info`, …
        event: the event's name.
        fields: the rest.
    """

    at_s: float
    incarnation: int
    level: str
    event: str
    fields: dict[str, Any]


@attrs.frozen
class Moved:
    """One transition of an actor, as its supervisor told it.

    Attributes:
        at_s: virtual seconds.
        incarnation: which life of the supervisor.
        actor: its uid.
        before, after: states.
        event: the event's type; None at the beginning of a life.
        reason: of the actor's problem, where the transition brought one.
    """

    at_s: float
    incarnation: int
    actor: str
    before: str
    after: str
    event: str | None
    reason: str | None


class Hearing:
    """Everything that was said, and who waits to hear something.

    Args:
        keeps: whether lines and moves are kept, or only told to `listeners` and to who expects them.

    Attributes:
        said: every line.
        moves: every transition.
        states: where each actor is, as was last told.
        listeners: are told of each line as it is said.
    """

    def __init__(self, *, keeps: bool = True) -> None:
        self.said: list[Said] = []
        self.moves: list[Moved] = []
        self.states: dict[str, str] = {}
        self.listeners: list[Callable[[Said, Moved | None], None]] = []
        self._keeps = keeps
        self._expected: list[tuple[Callable[[Said], bool], trio.Event]] = []

    @contextmanager
    def expecting(self, wanted: Callable[[Said], bool]) -> Iterator[trio.Event]:
        """Gives an event that is set in the moment in which such a line is said."""
        entry = (wanted, trio.Event())
        self._expected.append(entry)
        try:
            yield entry[1]
        finally:
            self._expected.remove(entry)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take structlog over, and give it back. What a speaker says who has a hearing of his own goes there."""
        before = structlog.get_config()
        structlog.configure(
            processors=[self._take],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)

    def _take(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        speaker = SPEAKING.get()
        if speaker is not None and speaker.is_dead:
            raise structlog.DropEvent
        incarnation = 0 if speaker is None else speaker.incarnation
        name = event.pop("event")
        error = event.pop("exc_info", None)
        if error is not None:
            event["exception"] = _exception(error)
        said = Said(trio.current_time(), incarnation, method, name, dict(event))
        hearing = self if speaker is None or speaker.heard_by is None else speaker.heard_by
        hearing.hear(said)
        return ""

    def hear(self, said: Said) -> None:
        """Take a line down, and tell it on."""
        moved = self._moved(said) if said.event == "transition" else None
        if self._keeps:
            self.said.append(said)
        for tell in self.listeners:
            tell(said, moved)
        for wanted, event_of in self._expected:
            if wanted(said):
                event_of.set()

    def _moved(self, said: Said) -> Moved:
        fields = said.fields
        moved = Moved(
            at_s=said.at_s,
            incarnation=said.incarnation,
            actor=fields["actor"],
            before=fields["from"],
            after=fields["to"],
            event=fields.get("event_type"),
            reason=fields.get("reason"),
        )
        if self._keeps:
            self.moves.append(moved)
        self.states[moved.actor] = moved.after
        return moved


def _exception(error: Any) -> str:
    """The kind and the words; a traceback holds paths of the machine that runs this."""
    found = error if isinstance(error, BaseException) else sys.exc_info()[1]
    return f"{type(found).__name__}: {found}"
