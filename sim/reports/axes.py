"""Scales from values to pixels, and where their marks are."""

from __future__ import annotations

import math
from typing import Final

import attrs

_STEPS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_TIME_STEPS_S: Final = (
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0,
    43_200.0, 86_400.0,
)  # fmt: skip
_DAY_S: Final = 86_400.0
_EVEN: Final = 1e-9
_LEAST: Final = 1e-9
"""What is less has no place of its own on a logarithmic scale."""


@attrs.frozen
class Linear:
    """From `low` at the pixel `begin` to `high` at the pixel `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Its pixel; what is outside is at the edge."""
        share = (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return self.begin + share * (self.end - self.begin)


@attrs.frozen
class Logarithmic:
    """From the first of its marks at the pixel `begin` to the last one at the pixel `end`."""

    marks: tuple[float, ...]
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Its pixel; what is outside, as nothing is, is at the edge."""
        low, high = math.log10(self.marks[0]), math.log10(self.marks[-1])
        return Linear(low, high, self.begin, self.end).at(math.log10(value) if value > 0 else low)


def round_up(value: float) -> float:
    """The next number that is round for a person; 1 for nothing."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (*_STEPS, 15.0) if step * unit >= value * (1 - 1e-9))


def even_marks(most: float, number: int) -> list[float]:
    """From 0 at equal steps that are round for a person, so many of them or fewer, until there is room for the most."""
    step = round_up(most / number)
    return [step * index for index in range(max(1, math.ceil(most / step - _EVEN)) + 1)]


def level_marks(most: float) -> tuple[float, ...]:
    """Of a number of things: nothing, a whole half, and as many as there is room for."""
    half = math.ceil(round_up(most / 2) - _EVEN)
    return (0.0, float(half), 2.0 * half) if most > 1 else (0.0, 1.0)


def time_marks(end_s: float, most: int = 12) -> list[float]:
    """Times from 0 to the end that are round for a person."""
    step_s = next((each for each in _TIME_STEPS_S if end_s / each <= most), 0.0)
    if not step_s:
        step_s = _DAY_S * round_up(end_s / _DAY_S / most)
    return [index * step_s for index in range(int(end_s / step_s) + 1)]


def decades(least: float, most: float, begin: float, end: float) -> Logarithmic:
    """A scale that has both in it, and is a decade wide at least; its marks are the powers of ten."""
    low, high = _decades(least, most)
    return Logarithmic(tuple(10.0**exponent for exponent in range(low, high + 1)), begin, end)


def finer(least: float, most: float, begin: float, end: float) -> Logarithmic:
    """A scale that has both in it, and is no wider than it must be; its marks are 1, 2 and 5 of each power of ten."""
    low, high = _decades(least, most)
    marks = [digit * 10.0**exponent for exponent in range(low, high + 1) for digit in (1.0, 2.0, 5.0)]
    first = max((index for index, mark in enumerate(marks) if mark <= least * (1 + _EVEN)), default=0)
    last = next((index for index, mark in enumerate(marks) if mark >= most * (1 - _EVEN)), len(marks) - 1)
    return Logarithmic(tuple(marks[first : max(last, first + 1) + 1]), begin, end)


def _decades(least: float, most: float) -> tuple[int, int]:
    low = math.floor(math.log10(max(least, _LEAST)) + _EVEN) if least > 0 else -3
    high = math.ceil(math.log10(max(most, _LEAST)) - _EVEN) if most > 0 else low + 1
    return low, max(high, low + 1)
