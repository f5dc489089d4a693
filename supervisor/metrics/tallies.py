"""Counts and durations by labels, kept as plain numbers.

Not prometheus-client's own: those ask the clock of the process when they are made and take a lock each time, for
threads that there are none of here. What is theirs is what a scraper sees: families of samples, and their text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from supervisor.metrics.catalogue import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric as Family

    from supervisor.metrics.catalogue import Metric

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Of the buckets of every histogram: from a write of a file to the longest step that there is."""
_LE: Final = (*map(floatToGoString, BOUNDS_S), "+Inf")

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""


def family(metric: Metric, samples: Iterable[Sample]) -> Family:
    """A counter or a gauge as the library has it."""
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    made = make(metric.name, metric.means, labels=metric.label_names)
    for labels, value in samples:
        made.add_metric(labels, value)
    return made


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
            self._buckets[labels] = [0] * len(_LE)

    def add(self, *labels: str, elapsed_s: float) -> None:
        """One more."""
        counts = self._buckets.get(labels)
        if counts is None:
            counts = self._buckets[labels] = [0] * len(_LE)
        counts[bisect_left(BOUNDS_S, elapsed_s)] += 1
        self._sums_s[labels] = self._sums_s.get(labels, 0.0) + elapsed_s

    def family(self) -> Family:
        """All of it."""
        made = HistogramMetricFamily(self._metric.name, self._metric.means, labels=self._metric.label_names)
        for labels, counts in self._buckets.items():
            made.add_metric(labels, list(zip(_LE, accumulate(counts), strict=True)), self._sums_s[labels])
        return made
