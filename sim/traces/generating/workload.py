"""What every workload has: workers that are there from the beginning, and actors that come and go."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from sim.traces.drawing import numbered
from sim.traces.records import Record, WorkerAdd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Workload(Protocol):
    """A workload with its parameters, which are attrs fields: numbers and words."""

    def records(self, seed: int) -> Iterator[Record]:
        """What happens, in its order; the same seed, the same records."""
        ...


def fleet(workers: int, gpus: int, model: str | None) -> Iterator[Record]:
    """Workers that are all alike, at the beginning."""
    for index in range(workers):
        yield WorkerAdd(at_s=0.0, worker=numbered("worker", index, workers), gpus=gpus, model=model)


def merged(*streams: Iterable[Record]) -> Iterator[Record]:
    """Streams of records, each in its order, as one; of those at one time, the earlier stream's come first."""
    return heapq.merge(*streams, key=_at_s)


def at(seconds: float) -> float:
    """A time, to the millisecond: what is finer tells nothing, and hangs on the machine's own arithmetic."""
    return round(seconds, 3)


def _at_s(record: Record) -> float:
    return record.at_s
