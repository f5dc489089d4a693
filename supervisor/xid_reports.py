"""The XIDs that came, bounded: how often each, which lines the log gets, and what the holders are still to be told.

A GPU in trouble reports by the hundred a second, and a monitor that is not ours may say any number at all. So each pair
of GPU and XID has one line at once and then one a minute with how often it came, all together a bounded number of
lines, and only so many pairs are remembered.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from actors.gpu.xids import XidPolicy, class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.gpu.facts import XidFact

PAIRS_MAX: Final = 256
"""Pairs of GPU and XID that are remembered; the one that came longest ago goes for a new one."""
AGAIN_S: Final = 60.0
"""Between two lines of the log about the same pair."""
LINES_MAX: Final = 64
"""Lines of the log in as long a time, about whatever."""
UNTOLD_MAX: Final = 64
"""Pairs, each of one holder, that may wait until the holders are told."""
SHOWN_MAX: Final = 16
"""XIDs of one GPU that its status shows, the latest."""


@attrs.define
class _Pair:
    """One GPU (None: not known which) and one XID.

    Attributes:
        count: how often it came.
        logged: of those, how many the log has told.
        logged_at_s: when it did.
    """

    count: int = 0
    logged: int = 0
    logged_at_s: float | None = None


def _nobody(_gpu: str) -> str | None:
    """Nobody holds a GPU."""
    return None


class XidReports:
    """Of one worker.

    Attributes:
        counts: how many came, by what is made of them.
        holder_of: who holds a GPU now; asked when an XID comes, for it may be another one by the time that it is told.
    """

    def __init__(self) -> None:
        self._pairs: dict[tuple[str | None, int], _Pair] = {}
        self._untold: dict[tuple[str, str, int], int] = {}
        self.holder_of: Callable[[str], str | None] = _nobody
        self._came = anyio.Event()
        self.counts: Counter[XidPolicy] = Counter()
        self._lines = 0
        self._lines_since_s = -AGAIN_S

    def add(self, fact: XidFact, now_s: float) -> int:
        """Take one that came; returns for how many the log is to have a line now, which may be none."""
        key = fact.gpu, fact.xid
        pair = self._pairs.pop(key, None) or _Pair()
        self._pairs[key] = pair  # the latest at the end
        if len(self._pairs) > PAIRS_MAX:
            del self._pairs[next(iter(self._pairs))]
        pair.count += 1
        self.counts[class_of(fact.xid).policy] += 1
        self._keep_untold(fact)
        if pair.logged_at_s is not None and now_s - pair.logged_at_s < AGAIN_S:
            return 0
        if not self._has_line(now_s):
            return 0
        due, pair.logged, pair.logged_at_s = pair.count - pair.logged, pair.count, now_s
        return due

    def _keep_untold(self, fact: XidFact) -> None:
        holder = None if fact.gpu is None else self.holder_of(fact.gpu)
        if fact.gpu is None or holder is None:
            return  # it is nobody's
        key = holder, fact.gpu, fact.xid
        if key in self._untold or len(self._untold) < UNTOLD_MAX:
            self._untold[key] = self._untold.get(key, 0) + 1
            self._came.set()

    def _has_line(self, now_s: float) -> bool:
        if now_s - self._lines_since_s >= AGAIN_S:
            self._lines, self._lines_since_s = 0, now_s
        self._lines += 1
        return self._lines <= LINES_MAX

    async def untold(self) -> tuple[tuple[str, str, int, int], ...]:
        """Wait until there is something to be told to holders, and take it: whom, GPU, XID, how often."""
        await self._came.wait()
        self._came = anyio.Event()
        untold, self._untold = self._untold, {}
        return tuple((holder, gpu, xid, count) for (holder, gpu, xid), count in untold.items())

    def as_json(self, gpu: str) -> list[dict[str, Any]]:
        """What a GPU has reported, for the status."""
        return list(self._shown(gpu))[-SHOWN_MAX:]

    def _shown(self, gpu: str) -> Iterator[dict[str, Any]]:
        for (uuid, xid), pair in self._pairs.items():
            if uuid == gpu:
                yield {"xid": xid, "count": pair.count, "policy": str(class_of(xid).policy)}
