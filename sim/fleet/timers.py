"""What a fleet waits for: times at which it looks again. Whoever carries facts in asks when the next one is."""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Container
from typing import Final

import attrs


class Look(enum.Enum):
    """What is looked at when the time has come; nothing may be left of it by then."""

    IDLE = enum.auto()
    """Whether an actor has been idle for so long that it is suspended."""
    ELSEWHERE = enum.auto()
    """Whether an actor still waits for the worker that has its snapshot."""
    RETRY = enum.auto()
    """Whether an actor still rests whose activation had failed."""
    DRAINED = enum.auto()
    """Whether a worker is still there whose drain has lasted as long as it may."""
    MAKE_ROOM = enum.auto()
    """Whether somebody is idle by now for whoever waits."""


OF_ACTORS: Final = frozenset({Look.IDLE, Look.ELSEWHERE, Look.RETRY})
TIDIED_FROM: Final = 1000


@attrs.define(eq=False)
class Timers:
    """The times, earliest first; of equal ones the one that was set first. `next_s` is the first; inf when none is."""

    next_s: float = math.inf
    _heap: list[tuple[float, int, Look, str]] = attrs.field(factory=list)
    _count: int = 0
    _most: int = TIDIED_FROM

    def __len__(self) -> int:
        """How many there are, also of what is over by now."""
        return len(self._heap)

    def set(self, at_s: float, look: Look, subject: str) -> None:
        """Look at that time; never, if it is inf."""
        if at_s < math.inf:
            self._count += 1
            heapq.heappush(self._heap, (at_s, self._count, look, subject))
            self.next_s = self._heap[0][0]

    def due(self, at_s: float) -> tuple[Look, str] | None:
        """The next one that is due, which is taken out; None when there is none."""
        if not self._heap or self._heap[0][0] > at_s:
            return None
        _, _, look, subject = heapq.heappop(self._heap)
        self.next_s = self._heap[0][0] if self._heap else math.inf
        return look, subject

    def tidy(self, actors: Container[str]) -> None:
        """Take out the times of actors that are none of these, once that may be half of all."""
        if len(self._heap) > self._most:
            self._heap = [each for each in self._heap if each[2] not in OF_ACTORS or each[3] in actors]
            heapq.heapify(self._heap)
            self._most = max(TIDIED_FROM, 2 * len(self._heap))
            self.next_s = self._heap[0][0] if self._heap else math.inf
