"""Counts and durations by labels, kept as plain numbers.

Not prometheus-client's own: those ask the clock of the process when they are made and take a lock each time, for
threads that there are none of here. What is theirs is the text that a scraper sees (`supervisor.metrics.text`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervisor.metrics.catalogue import Metric

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Of the buckets of every histogram: from a write of a file to the longest step that there is."""
_BUCKETS: Final = len(BOUNDS_S) + 1


@attrs.frozen
class Spread:
    """How long something took, each time.

    Attributes:
        counts: how many took at most as long as each of `BOUNDS_S`, and last all of them.
        sum_s: all of them together.
    """

    counts: tuple[int, ...]
    sum_s: float


Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""


@attrs.frozen
class Family:
    """A metric with what was found of it.

    Attributes:
        metric: which.
        samples: of a counter or a gauge.
        spreads: of a histogram, with the values of the labels.
    """

    metric: Metric
    samples: tuple[Sample, ...] = ()
    spreads: tuple[tuple[tuple[str, ...], Spread], ...] = ()


def family(metric: Metric, samples: Iterable[Sample]) -> Family:
    """A counter or a gauge."""
    return Family(metric, tuple(samples))


class Tally:
    """What only grows.

    Args:
        metric: which.
        known: labels that are told as 0 before anything happened; without labels that is always so.
    """

    def __init__(self, metric: Metric, *known: tuple[str, ...]) -> None:
        self._metric = metric
        self._counts: Counter[tuple[str, ...]] = Counter(dict.fromkeys(known if metric.labels else [()], 0))

    def add(self, *labels: str, count: int = 1) -> None:
        """It happened so often."""
        self._counts[labels] += count

    def family(self) -> Family:
        """All of it."""
        return family(self._metric, self._counts.items())


class Durations:
    """How long something took, in buckets.

    Args:
        metric: which.
        known: labels that are told with no duration before anything happened.
    """

    def __init__(self, metric: Metric, *known: tuple[str, ...]) -> None:
        self._metric = metric
        self._buckets: dict[tuple[str, ...], list[int]] = {}
        self._sums_s: dict[tuple[str, ...], float] = dict.fromkeys(known, 0.0)
        for labels in known:
            self._buckets[labels] = [0] * _BUCKETS

    def add(self, *labels: str, elapsed_s: float) -> None:
        """One more."""
        counts = self._buckets.get(labels)
        if counts is None:
            counts = self._buckets[labels] = [0] * _BUCKETS
        counts[bisect_left(BOUNDS_S, elapsed_s)] += 1
        self._sums_s[labels] = self._sums_s.get(labels, 0.0) + elapsed_s

    def family(self) -> Family:
        """All of it."""
        found = (
            (labels, Spread(tuple(accumulate(counts)), self._sums_s[labels]))
            for labels, counts in self._buckets.items()
        )
        return Family(self._metric, spreads=tuple(found))
