"""How much there was of several things over time, in at most a thousand buckets that grow as time goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS_MAX: Final = 1000
FIRST_BUCKET_S: Final = 1.0


@attrs.define(eq=False)
class Buckets:
    """The widths of the buckets, which all series share; `double` tells every series to merge its buckets in pairs."""

    bucket_s: float = FIRST_BUCKET_S
    series: list[Series] = attrs.field(factory=list)

    def new(self) -> Series:
        """Another series."""
        made = Series(self)
        self.series.append(made)
        return made

    def fit(self, at_s: float) -> None:
        """Make the buckets so wide that this time is in one of the first thousand."""
        while at_s >= self.bucket_s * BUCKETS_MAX:
            self.bucket_s *= 2
            for each in self.series:
                each.merge()

    def times(self, end_s: float) -> list[float]:
        """When each bucket begins, up to the end."""
        self.fit(end_s)
        return [round(index * self.bucket_s, 6) for index in range(self._count(end_s))]

    def means(self, one: Series, end_s: float, *, of: float = 1.0, digits: int = 4) -> list[float]:
        """The mean of a series in each bucket, as a share `of` so much; the last one is as wide as there is time."""
        one.until(end_s)
        self.fit(end_s)
        count = self._count(end_s)
        sums = [*one.sums, *([0.0] * (count - len(one.sums)))][:count]
        full = self.bucket_s * of
        last = sums.pop() / (max(end_s - (count - 1) * self.bucket_s, 1e-9) * of)
        # Nearly every one is nothing or all: to round each would take longer than much that they tell of.
        told = [0.0 if not total else 1.0 if total == full else round(total / full, digits) for total in sums]
        return [*told, round(last, digits)]

    def _count(self, end_s: float) -> int:
        return max(1, -int(-end_s // self.bucket_s))


@attrs.define(eq=False)
class Series:
    """One thing: its level now, and the sum of level times seconds in each bucket and in all."""

    buckets: Buckets
    level: float = 0.0
    total: float = 0.0
    since_s: float = 0.0
    sums: list[float] = attrs.field(factory=list)
    _bucket: int = 0
    _begin_s: float = 0.0
    _end_s: float = 0.0

    def change(self, at_s: float, by: float) -> None:
        """The level changes from now on."""
        if at_s > self.since_s:
            self.until(at_s)
        self.level += by

    def until(self, at_s: float) -> None:
        """Count the level as it is up to now."""
        begin_s, level = self.since_s, self.level
        if at_s <= begin_s:
            return
        self.since_s = at_s
        if not level:
            return
        amount = level * (at_s - begin_s)
        self.total += amount
        if self._begin_s <= begin_s and at_s < self._end_s:  # nearly always: both in the bucket of the last time
            self.sums[self._bucket] += amount
            return
        width = self.buckets.bucket_s
        if at_s >= width * BUCKETS_MAX:
            self.buckets.fit(at_s)
            width = self.buckets.bucket_s
        first, last = int(begin_s // width), int(at_s // width)
        sums = self.sums
        if len(sums) <= last:
            sums.extend([0.0] * (last + 1 - len(sums)))
        self._bucket, self._begin_s, self._end_s = last, last * width, (last + 1) * width
        if first == last:
            sums[first] += amount
            return
        sums[first] += level * ((first + 1) * width - begin_s)
        for index in range(first + 1, last):
            sums[index] += level * width
        sums[last] += level * (at_s - last * width)

    def merge(self) -> None:
        """Two buckets become one."""
        self._end_s = 0.0
        sums: Sequence[float] = self.sums
        self.sums = [sum(sums[index : index + 2]) for index in range(0, len(sums), 2)]
