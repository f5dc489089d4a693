"""Distributions: how long something takes, or how large it is, as it stands in a config, and how it is drawn.

Every one says where its numbers come from: a published figure, a measurement, or `assumption:` and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Final, Protocol, TypeAlias

from msgspec import Meta, Struct

Draw: TypeAlias = Callable[[], float]
"""Gives the next value."""

_NORMAL_P95: Final = 1.6448536269514722
"""Standard deviations above its mean below which 95 % of a normal distribution are."""

Positive: TypeAlias = Annotated[float, Meta(gt=0, le=1e12)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
Source: TypeAlias = Annotated[str, Meta(min_length=1, max_length=500)]


class Chance(Protocol):
    """The part of random.Random that is needed."""

    def random(self) -> float:
        """A number of 0 <= x < 1."""
        ...

    def gauss(self, mu: float, sigma: float, /) -> float:
        """A number from a normal distribution."""
        ...


class _Distribution(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What each has.

    Attributes:
        source: where the numbers come from.
        per_mib: added for each MiB of the snapshot that it is about.
    """

    source: Source
    per_mib: NotNegative = 0.0


class Constant(_Distribution, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="constant"):
    """Always the same."""

    value: NotNegative

    def drawn_by(self, chance: Chance) -> Draw:  # noqa: ARG002 - nothing is left to it
        """A way to draw from it."""
        value = self.value
        return lambda: value


class Uniform(_Distribution, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="uniform"):
    """Anything between two bounds, all as likely."""

    low: NotNegative
    high: NotNegative

    def __post_init__(self) -> None:
        """The bounds are in order."""
        if self.high < self.low:
            raise ValueError(f"high is {self.high:g}, below low, {self.low:g}")

    def drawn_by(self, chance: Chance) -> Draw:
        """A way to draw from it."""
        low, width, random = self.low, self.high - self.low, chance.random
        return lambda: low + width * random()


class Exponential(_Distribution, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exponential"):
    """The time until something happens that is as likely at any moment."""

    mean: Positive

    def drawn_by(self, chance: Chance) -> Draw:
        """A way to draw from it."""
        mean, random, log = self.mean, chance.random, math.log
        return lambda: -mean * log(1.0 - random())


class Lognormal(_Distribution, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="lognormal"):
    """What most durations are like: never negative, mostly near the median, sometimes much longer."""

    median: Positive
    p95: Positive

    def __post_init__(self) -> None:
        """The quantiles are in order."""
        if self.p95 < self.median:
            raise ValueError(f"p95 is {self.p95:g}, below the median, {self.median:g}")

    def drawn_by(self, chance: Chance) -> Draw:
        """A way to draw from it."""
        mu, sigma = math.log(self.median), math.log(self.p95 / self.median) / _NORMAL_P95
        gauss, exp = chance.gauss, math.exp
        return lambda: exp(gauss(mu, sigma))


Distribution: TypeAlias = Constant | Uniform | Exponential | Lognormal
