"""What happens on a simulated machine at a time of its own, without a task that waits for it.

A task, a scope and a sleep cost more than most of what is waited for; a machine of many actors does little else.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import TypeAlias

import attrs
import trio

Act: TypeAlias = "Callable[[], None]"


def _in_order() -> float:
    return 0.0


@attrs.define(eq=False)
class Appointment:
    """Something that will be done.

    Attributes:
        act: what; None when it was done or called off.
    """

    act: Act | None

    def call_off(self) -> None:
        """It is not to be done any more."""
        self.act = None


class Agenda:
    """What is due when.

    Args:
        draw: a number for each appointment; of those that are due at once, the one with the smallest comes first.
    """

    def __init__(self, draw: Callable[[], float] = _in_order) -> None:
        self._draw = draw
        self._due: list[tuple[float, float, int, Appointment]] = []
        self._number = 0
        self._sleep: trio.CancelScope | None = None

    def at(self, when_s: float, act: Act) -> Appointment:
        """Do something at a time."""
        self._number += 1
        appointment = Appointment(act)
        heapq.heappush(self._due, (when_s, self._draw(), self._number, appointment))
        if self._sleep is not None and when_s < self._sleep.deadline:
            self._sleep.deadline = when_s
        return appointment

    def soon(self, act: Act) -> Appointment:
        """Do something now, after whoever asks has had his turn."""
        return self.at(trio.current_time(), act)

    async def keep(self) -> None:
        """Do what is due, for ever."""
        while True:
            next_s = self._do_what_is_due()
            with trio.CancelScope(deadline=next_s) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None

    def _do_what_is_due(self) -> float:
        """Returns when there will be more to do."""
        now_s = trio.current_time()
        while self._due:
            when_s, _, _, appointment = self._due[0]
            if appointment.act is not None and when_s > now_s:
                return when_s
            heapq.heappop(self._due)
            if appointment.act is not None:
                act, appointment.act = appointment.act, None
                act()
        return math.inf
