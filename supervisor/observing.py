"""Who hears what happens on a worker, as it happens: metrics, and whoever else counts or measures.

One seam, so that nothing is counted twice or forgotten: lives tell of transitions, of their steps' ends and of troubles
with which they run on; admission of each document that it judged; uploads of each try. Whoever hears must be quick,
wait for nothing and raise nothing: it is called in the middle of what it hears of.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statemachine.actor import Actor
    from statemachine.commands import Command
    from statemachine.events import Event
    from statemachine.problem import Problem


class Ending(enum.StrEnum):
    """How a step came to its end."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """It was given up: another request came, its time was over, or the worker ended."""


class Observer(Protocol):
    """Hears."""

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:
        """An actor was `before` and is `actor` now; without an event it has just begun."""
        ...

    def step_ended(self, uid: str, command: Command, ending: Ending, elapsed_s: float, problem: Problem | None) -> None:
        """A step has ended, its own cleanup included; one that failed did so with this problem."""
        ...

    def troubled(self, uid: str, problem: Problem, count: int) -> None:
        """A trouble came so often with which an actor runs on."""
        ...

    def judged(self, *, is_admitted: bool, elapsed_s: float) -> None:
        """A document was admitted or not, whichever way it came."""
        ...

    def refused(self, problems: Iterable[Problem]) -> None:
        """A request or a document was refused."""
        ...

    def upload_ended(self, *, is_there: bool, elapsed_s: float) -> None:
        """A try to bring a snapshot to its store has ended."""
        ...


class Nobody:
    """Hears nothing."""

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:
        """Nothing."""

    def step_ended(self, uid: str, command: Command, ending: Ending, elapsed_s: float, problem: Problem | None) -> None:
        """Nothing."""

    def troubled(self, uid: str, problem: Problem, count: int) -> None:
        """Nothing."""

    def judged(self, *, is_admitted: bool, elapsed_s: float) -> None:
        """Nothing."""

    def refused(self, problems: Iterable[Problem]) -> None:
        """Nothing."""

    def upload_ended(self, *, is_there: bool, elapsed_s: float) -> None:
        """Nothing."""


NOBODY: Final[Observer] = Nobody()
"""For whoever is not listened to."""


class Several:
    """Lets several hear the same, in this order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:
        """Passed on."""
        for each in self._observers:
            each.entered(uid, before, actor, event)

    def step_ended(self, uid: str, command: Command, ending: Ending, elapsed_s: float, problem: Problem | None) -> None:
        """Passed on."""
        for each in self._observers:
            each.step_ended(uid, command, ending, elapsed_s, problem)

    def troubled(self, uid: str, problem: Problem, count: int) -> None:
        """Passed on."""
        for each in self._observers:
            each.troubled(uid, problem, count)

    def judged(self, *, is_admitted: bool, elapsed_s: float) -> None:
        """Passed on."""
        for each in self._observers:
            each.judged(is_admitted=is_admitted, elapsed_s=elapsed_s)

    def refused(self, problems: Iterable[Problem]) -> None:
        """Passed on."""
        kept = tuple(problems)
        for each in self._observers:
            each.refused(kept)

    def upload_ended(self, *, is_there: bool, elapsed_s: float) -> None:
        """Passed on."""
        for each in self._observers:
            each.upload_ended(is_there=is_there, elapsed_s=elapsed_s)
