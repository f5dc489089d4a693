"""A histogram of bounded size, whose quantiles are right within one percent."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

RELATIVE_ERROR: Final = 0.01
_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG: Final = 1 / math.log(_GAMMA)
_LEAST: Final = 1e-6
"""What is less counts as nothing: a microsecond."""
_MOST: Final = 1e12
TOGETHER: Final = 256
"""Values that wait to be counted."""
QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@attrs.define(eq=False)
class Quantiles:
    """Counts values (0 and more) in buckets that grow by two percent each: some two thousand, however many values.

    Attributes:
        latest: values that wait to be counted; whoever adds to it must see to it that `gather` is called now and then.

    Source: C. Masson, J. Rim, H. Lee, "DDSketch", VLDB 2019, without its merging of buckets.
    """

    _count: int = 0
    _total: float = 0.0
    _max: float = 0.0
    _buckets: dict[int, int] = attrs.field(factory=dict)
    latest: list[float] = attrs.field(factory=list)

    def add(self, value: float) -> None:
        """Count a value."""
        latest = self.latest
        latest.append(value)
        if len(latest) >= TOGETHER:
            self.gather()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count + len(self.latest)

    @property
    def total(self) -> float:
        """Their sum."""
        self.gather()
        return self._total

    @property
    def max(self) -> float:
        """The largest; 0 when there are none."""
        self.gather()
        return self._max

    def gather(self) -> None:
        """Put the latest into their buckets: together they cost half of what they cost one by one."""
        latest, log, ceil, buckets = self.latest, math.log, math.ceil, self._buckets
        if not latest:
            return
        self._count += len(latest)
        self._total = sum(latest, self._total)
        self._max = max(self._max, *latest)
        for value in latest:
            bucket = ceil(log(value) * _PER_LOG) if _LEAST < value < _MOST else _bucket_outside(value)
            buckets[bucket] = buckets.get(bucket, 0) + 1
        latest.clear()

    def at(self, share: float) -> float:
        """The value that `share` of all are not above; 0 when there are none."""
        self.gather()
        rank, seen = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                middle = 2 * _GAMMA**bucket / (_GAMMA + 1)
                return min(middle, self.max) if middle > _LEAST else 0.0
        return 0.0

    def document(self) -> dict[str, Any]:
        """As results tell it."""
        return {
            "count": self.count,
            **{name: rounded(self.at(share)) for name, share in QUANTILES.items()},
            "max": rounded(self.max),
            "mean": rounded(self.total / self.count) if self.count else 0.0,
        }


def _bucket_outside(value: float) -> int:
    return math.ceil(math.log(_LEAST if value <= _LEAST else _MOST) * _PER_LOG)


def rounded(value: float) -> float:
    """To microseconds, so that a report is no longer than what it says."""
    return round(value, 6)
