"""Who has ended is remembered for a day, so that an old document that comes again begins nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TOMBSTONE_S: Final = 24 * 3600.0
"""How long the generation of a terminated actor is remembered."""
TOMBSTONES_MAX: Final = 10_000


class Tombstones:
    """When each of them has ended.

    Args:
        now_s: seconds since 1970 UTC.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._ended_at_s: dict[str, float] = {}
        self._oldest_end_s = math.inf

    def put(self, uid: str, ended_at_s: float) -> None:
        """An actor has ended."""
        self._ended_at_s[uid] = ended_at_s
        self._oldest_end_s = min(self._oldest_end_s, ended_at_s)

    def take(self, uid: str) -> None:
        """Another life of it has begun."""
        self._ended_at_s.pop(uid, None)

    def take_old(self) -> tuple[str, ...]:
        """Forget those that are older than a day, and the oldest of too many; returns whose they were."""
        if not self._ended_at_s:
            return ()
        forgotten_s = self._now_s() - TOMBSTONE_S
        surplus = len(self._ended_at_s) - TOMBSTONES_MAX
        # Every look at a life comes through here: nothing is looked through before there is something to forget.
        if surplus <= 0 and forgotten_s <= self._oldest_end_s:
            return ()
        oldest_first = sorted(self._ended_at_s, key=self._ended_at_s.__getitem__)
        old = tuple(
            uid for place, uid in enumerate(oldest_first) if place < surplus or self._ended_at_s[uid] < forgotten_s
        )
        for uid in old:
            del self._ended_at_s[uid]
        self._oldest_end_s = min(self._ended_at_s.values(), default=math.inf)
        return old
