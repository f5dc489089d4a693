"""What chance decides in traces that are made: always from a seed, and never by the order of a set."""

from __future__ import annotations

import math
import random  # noqa: TID251 - seeded: the same seed makes the same trace
from bisect import bisect
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Chance:
    """One stream of chance; one with another name says nothing about it."""

    def __init__(self, seed: int, *names: str | int) -> None:
        """`names` tell apart what is drawn for one thing and for another of the same trace."""
        text = ": ".join(map(str, (seed, *names)))
        self._random = random.Random(text)  # noqa: S311 - a trace wants to be made again

    def share(self) -> float:
        """From 0 to 1."""
        return self._random.random()

    def between(self, low: float, high: float) -> float:
        """Any in between is as likely."""
        return low + (high - low) * self._random.random()

    def exponential(self, mean: float) -> float:
        """How long until something happens that may happen at any time."""
        return self._random.expovariate(1 / mean)

    def lognormal(self, median: float, sigma: float) -> float:
        """How long something takes: never less than nothing, now and then very long."""
        return self._random.lognormvariate(math.log(median), sigma)

    def geometric(self, mean: float) -> int:
        """How many, at least 1, when each is as likely the last one."""
        if mean <= 1:
            return 1
        return 1 + int(math.log(1 - self._random.random()) / math.log(1 - 1 / mean))

    def among(self, weights: Sequence[float]) -> int:
        """The place of one of these, each as likely as its weight says."""
        return self._random.choices(range(len(weights)), weights)[0]


class Zipf:
    """Which of so many, the k-th of them with a weight of 1 / k ** skew; a skew of 0 makes all alike."""

    def __init__(self, count: int, skew: float) -> None:
        self._reach = list(accumulate(1 / rank**skew for rank in range(1, count + 1)))

    def draw(self, chance: Chance) -> int:
        """A number from 0 on."""
        return min(bisect(self._reach, chance.share() * self._reach[-1]), len(self._reach) - 1)


def numbered(word: str, index: int, count: int) -> str:
    """The name of one of so many, from 1 on, all equally long: `agent-07`."""
    return f"{word}-{index + 1:0{len(str(count))}}"
