"""Who is idle, and who is suspended so that somebody else gets room: the one that is idle longest first."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from sim.fleet.roster import Listed
from sim.fleet.schedulers import Claim, Place, Room

KNOWN_MAX: Final = 64
"""Claims for which it is known that nobody is idle."""
_Entry: TypeAlias = tuple[float, int, Listed]
"""Until when it is busy, its turn among those that are busy as long, and who it is."""


@attrs.define(eq=False)
class Idleness:
    """The running actors that can be idle, in the order in which they become it.

    For small claims it is remembered until when nobody can be: all who run were looked at, whoever comes
    to run or is asked for something is idle later, and room that others leave adds nothing to one actor's place.
    """

    room: Room
    idle_min_s: float
    _running: list[_Entry] = attrs.field(factory=list)
    _running_on: dict[str, list[_Entry]] = attrs.field(factory=dict)
    _entries: dict[str, _Entry] = attrs.field(factory=dict)
    _turns: int = 0
    _nobody_until_s: dict[Claim, float] = attrs.field(factory=dict)

    def asked(self, one: Listed) -> None:
        """A running actor was asked for something, or has come to Running."""
        if one.is_working:
            return
        is_new = not self._take_out(one)
        self._turns += 1
        entry = self._entries[one.name] = one.busy_until_s, self._turns, one
        insort(self._running, entry)
        insort(self._running_on.setdefault(one.worker or "", []), entry)
        if is_new and self._nobody_until_s:
            idle_s = one.busy_until_s + self.idle_min_s
            for claim, until_s in self._nobody_until_s.items():
                if idle_s < until_s:
                    self._nobody_until_s[claim] = idle_s

    def left(self, one: Listed) -> None:
        """It runs no more, or is being suspended."""
        self._take_out(one)

    def _take_out(self, one: Listed) -> bool:
        """Out of all orders; says whether it was in them."""
        entry = self._entries.pop(one.name, None)
        if entry is None:
            return False
        worker = one.worker or ""
        there = self._running_on[worker]
        for some in (self._running, there):
            del some[bisect_left(some, entry)]
        if not there:
            del self._running_on[worker]
        return True

    def look_anew(self) -> None:
        """Forget for whom nobody was idle."""
        self._nobody_until_s.clear()

    def victims(self, claim: Claim, at_s: float) -> list[Listed] | float:
        """Those that leave enough room for a claim on one worker when they are suspended; or when to look again.

        Returns: actors; or the time at which the next one has been idle for long enough, inf when there is none.
        """
        known_s = self._nobody_until_s.get(claim)
        if known_s is not None and at_s < known_s:
            return known_s
        gathered: dict[str, list[Listed]] = {}
        next_s = math.inf
        for busy_until_s, _, one in self._running if claim.worker is None else self._running_on.get(claim.worker, ()):
            place = self._place_of(one, claim)
            if place is None:
                continue
            if busy_until_s + self.idle_min_s > at_s:
                next_s = busy_until_s + self.idle_min_s
                break  # whoever follows is busy for longer
            there = gathered.setdefault(place.name, [])
            there.append(one)
            if _fits(place, claim, there):
                self._nobody_until_s.pop(claim, None)
                return there
        if claim.is_small and not gathered:  # where GPUs are lost, one who leaves may be enough only later
            if len(self._nobody_until_s) >= KNOWN_MAX:
                self._nobody_until_s.clear()
            self._nobody_until_s[claim] = next_s
        return next_s

    def _place_of(self, one: Listed, claim: Claim) -> Place | None:
        """Where suspending this one would help; None where it would not."""
        place = self.room.places.get(one.worker or "")
        if place is None or not place.is_open:
            return None
        if claim.gpus and (one.claim.gpus == 0 or (claim.models and place.model not in claim.models)):
            return None
        return place


def _fits(place: Place, claim: Claim, leaving: list[Listed]) -> bool:
    def enough(free: int | None, wanted: int, given: Callable[[Claim], int]) -> bool:
        return free is None or free + sum(given(one.claim) for one in leaving) >= wanted

    return (
        place.free_gpus + sum(one.claim.gpus for one in leaving) >= claim.gpus
        and enough(place.free_cpu_milli, claim.cpu_milli, lambda each: each.cpu_milli)
        and enough(place.free_memory_bytes, claim.memory_bytes, lambda each: each.memory_bytes)
    )
