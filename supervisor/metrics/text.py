"""What was found at a scrape as the text that a scraper takes, by prometheus-client.

Imported when somebody scrapes: the library takes HTTP servers along that nobody here needs, and a start would wait for
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from supervisor.metrics.catalogue import Kind
from supervisor.metrics.tallies import BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric as LibraryFamily

    from supervisor.metrics.tallies import Family

_LE: Final = (*map(floatToGoString, BOUNDS_S), "+Inf")


class _Scrape(Collector):
    """The families of one scrape, as the library wants them."""

    def __init__(self, families: Iterable[LibraryFamily]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[LibraryFamily]:
        """All of them."""
        return self._families


def as_text(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """All of it as text, and what that is.

    Args:
        families: what was found.
        accept: what is chosen from, in our own words: the library would repeat a client's in the type of the answer.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_Scrape(map(_of_library, families))), content_type


def _of_library(family: Family) -> LibraryFamily:
    metric = family.metric
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.means, labels=metric.label_names)
        for labels, spread in family.spreads:
            histogram.add_metric(labels, list(zip(_LE, spread.counts, strict=True)), spread.sum_s)
        return histogram
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    made = make(metric.name, metric.means, labels=metric.label_names)
    for labels, value in family.samples:
        made.add_metric(labels, value)
    return made
