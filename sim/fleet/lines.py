"""Who waits for room: a line for each different claim, in which the first goes first.

Whoever waits was tried when it came, and every worker that got room since was offered to it. So when a worker gets
room, only that worker is looked at, and only the first of each line.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.fleet.roster import Listed
from sim.fleet.schedulers import Claim, Place


class Lines:
    """All lines.

    Attributes:
        count: how many wait. large: how many of them may need what several others leave.
    """

    def __init__(self) -> None:
        self._lines: dict[Claim, dict[str, Listed]] = {}
        self._turns = 0
        self.count = 0
        self.large = 0

    def join(self, one: Listed, claim: Claim) -> None:
        """An actor waits with this claim; one that waited with another claim keeps its turn among the lines."""
        if one.line == claim:
            return
        if one.line is None:
            self._turns += 1
            one.waits_since = self._turns
        else:
            self.leave(one)
        one.line = claim
        self._lines.setdefault(claim, {})[one.name] = one
        self.count += 1
        self.large += not claim.is_small

    def leave(self, one: Listed) -> None:
        """It waits no more."""
        if one.line is None:
            return
        line = self._lines[one.line]
        del line[one.name]
        if not line:
            del self._lines[one.line]
        self.count -= 1
        self.large -= not one.line.is_small
        one.line = None

    def has(self, claim: Claim) -> bool:
        """Whether anybody waits with this claim."""
        return claim in self._lines

    def first_for(self, place: Place) -> Listed | None:
        """Of the first of each line, the one that came first among those for whom this worker has room."""
        best: Listed | None = None
        if place.is_open:
            for claim, line in self._lines.items():
                if place.has_room_for(claim):
                    first = next(iter(line.values()))
                    if best is None or first.waits_since < best.waits_since:
                        best = first
        return best

    def __iter__(self) -> Iterator[tuple[Claim, Listed]]:
        """The lines with the first of each, by turn."""
        firsts = [(claim, next(iter(line.values()))) for claim, line in self._lines.items()]
        return iter(sorted(firsts, key=lambda pair: pair[1].waits_since))

    def everybody(self, claim: Claim) -> list[Listed]:
        """All who wait with this claim, in turn."""
        return list(self._lines.get(claim, {}).values())
