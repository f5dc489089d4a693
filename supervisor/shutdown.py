"""The wish for the worker's end, as signals bring it, and the one deadline of all that follows.

The first signal asks, and the deadline counts from it, whatever the worker is doing: taking over what an earlier life
left, working, or clearing up after a fault. The second shortens what is left to some seconds; a third changes nothing.
Within the deadline each phase of the end has its share, so that the next one still has time for what it must do.
"""

from __future__ import annotations

import enum
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HURRIED_S: Final = 5.0
"""What a second signal leaves of the time."""
LAST_S: Final = 5.0
"""What is still killed when the deadline is over may take so long: nobody else would end it."""


class Phase(enum.Enum):
    """The phases of the end, and what each leaves for those after it: a share of the time, at most so many seconds."""

    SAVING = (1 / 3, 40.0)
    """Suspends. What is left is enough for the usual grace period of 30 s, and for what comes after it."""
    STOPPING = (1 / 12, 10.0)
    """TERM and the grace period of whoever was not suspended."""
    ENDING = (0.0, 0.0)
    """KILL, and whatever is not in its store yet."""

    def leaves_s(self, time_s: float) -> float:
        """What it leaves of so many seconds."""
        share, most_s = self.value
        return min(share * time_s, most_s)


class Shutdown:
    """Whether the end was asked for, and how long it may take.

    Args:
        timeout_s: from the first signal to the end of everything.

    Attributes:
        asked: set with the first signal.
        when_asked: is called with the first signal, before anything comes of it.
        is_over: whether the worker has left: nothing is asked of it any more.
    """

    def __init__(self, timeout_s: float) -> None:
        self.asked, self.is_over = anyio.Event(), False
        self.when_asked: Callable[[], None] = _nothing
        self._timeout_s = timeout_s
        self._times = 0
        self._time_s = timeout_s
        self._deadline_at = math.inf
        self._bounded: dict[anyio.CancelScope, Callable[[], float]] = {}

    @property
    def is_asked(self) -> bool:
        """Whether the end was asked for."""
        return self.asked.is_set()

    def allow(self, timeout_s: float) -> None:
        """Change how long it may take; not once somebody has asked."""
        self._timeout_s = timeout_s

    def ask(self) -> float | None:
        """A signal asks for the end; returns how many seconds are left now, None when it has changed nothing."""
        now = anyio.current_time()
        self._times += 1
        if self._times == 1:
            self.when_asked()
        time_s = self._timeout_s if self._times == 1 else HURRIED_S
        if self._times > 2 or now + time_s >= self._deadline_at:  # noqa: PLR2004 - the third one
            return None
        self._time_s, self._deadline_at = time_s, now + time_s
        for scope, at in self._bounded.items():
            scope.deadline = at()
        self.asked.set()
        return time_s

    @contextmanager
    def until(self, phase: Phase) -> Iterator[anyio.CancelScope]:
        """Give the body up when the time of a phase is over; as long as nobody asks for the end, it is not."""
        with self._bound(anyio.CancelScope(), lambda: self._end_of(phase)) as scope:
            yield scope

    @contextmanager
    def at_last(self, most_s: float, *, began_at: float | None = None) -> Iterator[anyio.CancelScope]:
        """Give the body, which nobody cancels, up after so long; after the deadline it still has some seconds.

        Args:
            most_s: how long that is.
            began_at: when it began, for what comes in several parts that have these seconds together; None: now.
        """
        if began_at is None:
            began_at = anyio.current_time()

        def at() -> float:
            return min(began_at + most_s, max(self._deadline_at, began_at + LAST_S))

        with self._bound(anyio.CancelScope(shield=True), at) as scope:
            yield scope

    def _end_of(self, phase: Phase) -> float:
        return self._deadline_at - phase.leaves_s(self._time_s)

    @contextmanager
    def _bound(self, scope: anyio.CancelScope, at: Callable[[], float]) -> Iterator[anyio.CancelScope]:
        scope.deadline = at()
        self._bounded[scope] = at
        try:
            with scope:
                yield scope
        finally:
            del self._bounded[scope]


def _nothing() -> None:
    """Nobody wants to know that the end was asked for."""
