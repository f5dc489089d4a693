"""The way to the store: one bandwidth that all workers share, and one for each worker.

Every transfer has the same share of both that any other has; the smaller share is its speed. Shares change whenever a
transfer begins or ends, so only the transfer that ends next is known, and until when nothing changes.

Workers with as many transfers each are equally fast, so it is counted once for all of them what each transfer has had.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Generic, TypeVar

import attrs

_Key = TypeVar("_Key")


@attrs.define(eq=False)
class _Worker(Generic[_Key]):
    """The transfers of one worker, all of one speed.

    Attributes:
        ends: of each, what it has had when it ends, counted from when the worker's first one began.
        base_bytes: what is counted in its pace, less what is counted here. joined: how often it has changed its pace.
    """

    ends: dict[_Key, float] = attrs.field(factory=dict)
    base_bytes: float = 0.0
    joined: int = 0


@attrs.define(eq=False)
class _Pace(Generic[_Key]):
    """The workers with so many transfers each.

    Attributes:
        had_bytes: what a transfer that was there from the beginning has had.
        firsts: what will have been had when a worker's next one ends, and which worker; outdated ones are passed over.
    """

    count: int
    had_bytes: float = 0.0
    workers: int = 0
    firsts: list[tuple[float, int, int, _Worker[_Key]]] = attrs.field(factory=list)


class Bandwidth(Generic[_Key]):
    """Transfers under way. Whoever asks moves the time on; nothing happens by itself."""

    def __init__(self, *, bytes_per_s: float, worker_bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._worker_bytes_per_s = worker_bytes_per_s
        self._workers: dict[str, _Worker[_Key]] = {}
        self._paces: dict[int, _Pace[_Key]] = {}
        self._of: dict[_Key, str] = {}
        self._turns = 0
        self._at_s = 0.0
        self._paused = False

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._of)

    def begin(self, key: _Key, worker: str, size_bytes: float, at_s: float) -> None:
        """A transfer begins."""
        self._advance(at_s)
        on = self._workers.get(worker)
        if on is None:
            on, had_bytes = self._workers.setdefault(worker, _Worker()), 0.0
        else:
            had_bytes = self._leave(on)
        on.ends[key] = had_bytes + size_bytes
        self._of[key] = worker
        self._join(on, had_bytes)

    def drop(self, key: _Key, at_s: float) -> bool:
        """A transfer ends, whether it is done or given up; says whether it was under way."""
        worker = self._of.pop(key, None)
        if worker is None:
            return False
        self._advance(at_s, more=1)
        on = self._workers[worker]
        had_bytes = self._leave(on)
        del on.ends[key]
        if on.ends:
            self._join(on, had_bytes)
        else:
            del self._workers[worker]
        return True

    def pause(self, at_s: float, *, paused: bool) -> None:
        """The store is out of reach, or back again: transfers stand still meanwhile."""
        self._advance(at_s)
        self._paused = paused

    def next_end(self, at_s: float) -> tuple[float, _Key] | None:
        """Which transfer ends next, and when, if no other begins or ends before."""
        self._advance(at_s)
        if not self._of or self._paused:
            return None
        best, best_s, share = None, math.inf, self._bytes_per_s / len(self._of)
        for pace in self._paces.values():
            firsts = pace.firsts
            while firsts[0][2] != firsts[0][3].joined:
                heappop(firsts)
            left_s = (firsts[0][0] - pace.had_bytes) / min(self._worker_bytes_per_s / pace.count, share)
            if left_s < best_s:
                best, best_s = firsts[0][3], left_s
        if best is None:
            return None
        return at_s + max(best_s, 0.0), min(best.ends, key=best.ends.__getitem__)

    def _join(self, on: _Worker[_Key], had_bytes: float) -> None:
        """A worker has as many transfers as it has now, each of which would have had so much."""
        count = len(on.ends)
        pace = self._paces.get(count)
        if pace is None:
            pace = self._paces[count] = _Pace(count)
        pace.workers += 1
        on.base_bytes = pace.had_bytes - had_bytes
        self._turns += 1
        heappush(pace.firsts, (min(on.ends.values()) + on.base_bytes, self._turns, on.joined, on))

    def _leave(self, on: _Worker[_Key]) -> float:
        """Its number changes: returns how much each of its transfers would have had."""
        pace = self._paces[len(on.ends)]
        had_bytes = pace.had_bytes - on.base_bytes
        pace.workers -= 1
        on.joined += 1
        if not pace.workers:
            del self._paces[pace.count]
        return had_bytes

    def _advance(self, at_s: float, more: int = 0) -> None:
        """Move the time on; `more` are under way than are listed."""
        passed_s = at_s - self._at_s
        self._at_s = at_s
        if passed_s > 0 and self._paces and not self._paused:
            share = self._bytes_per_s / (len(self._of) + more)
            for pace in self._paces.values():
                pace.had_bytes += passed_s * min(self._worker_bytes_per_s / pace.count, share)
