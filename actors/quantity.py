"""Kubernetes quantities: `500m`, `1Gi`, `1e3`, read as Kubernetes reads them and held exactly.

Source: resource.ParseQuantity of k8s.io/apimachinery v0.37. What follows from there and surprises: `1E` is exa and
`1E3` an exponent; `.5`, `5.` and `+1` are fine; below nano is rounded away from zero; a binary suffix caps at 2^63 - 1
while a decimal one does not.

Three things differ, each on the safe side. A text without any digit (`m`, `Ki`, `+`, `.`) is refused: Kubernetes'
scanner takes it for zero, its own grammar does not. A text over 256 characters is refused. Magnitudes beyond 10^40 are
all held as 10^40: Kubernetes tries to write out `1e2147483647`.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

INT64_MAX: Final = (1 << 63) - 1
_TEXT_MAX: Final = 256
_NANO_DIGITS: Final = 9
_NANO: Final = 10**_NANO_DIGITS
_BEYOND_DIGITS: Final = 40
_BEYOND: Final = 10**_BEYOND_DIGITS
_INT32_MAX: Final = (1 << 31) - 1

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
)
_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class InvalidQuantityError(ValueError):
    """Raised when a text is not a quantity."""


@attrs.frozen
class Quantity:
    """An exact amount in units of 10^-9, the finest that Kubernetes keeps."""

    nanos: int

    @property
    def is_negative(self) -> bool:
        """Whether it is below zero."""
        return self.nanos < 0

    @property
    def milli_ceil(self) -> int:
        """Thousandths, rounded up: how Kubernetes counts CPU."""
        return -(-self.nanos * 1000 // _NANO)

    @property
    def bytes_ceil(self) -> int:
        """Units, rounded up: how Kubernetes counts bytes."""
        return -(-self.nanos // _NANO)

    def whole(self) -> int | None:
        """The number of units, or None when it is a fraction."""
        units, rest = divmod(self.nanos, _NANO)
        return None if rest else units


def parse_quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        InvalidQuantityError: the text is none.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise InvalidQuantityError(text)
    fraction = match["fraction"] or ""
    digits = int(match["whole"] + fraction)
    suffix = match["suffix"] or ""
    if suffix in _BINARY_SUFFIXES:
        units, rest = divmod(digits * _NANO << _BINARY_SUFFIXES[suffix], 10 ** len(fraction))
        magnitude = min(units + bool(rest), INT64_MAX * _NANO)
    else:
        magnitude = _decimal_nanos(digits, _decimal_exponent(suffix) - len(fraction) + _NANO_DIGITS)
    return Quantity(-magnitude if match["sign"] == "-" else magnitude)


def _decimal_exponent(suffix: str) -> int:
    if not suffix:
        return 0
    if suffix in _DECIMAL_SUFFIXES:
        return _DECIMAL_SUFFIXES[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _INT32_MAX:
        # Kubernetes cuts it to 32 bits, which turns a huge number into a tiny one.
        raise InvalidQuantityError(suffix)
    return exponent


def _decimal_nanos(digits: int, exponent: int) -> int:
    """`digits` * 10^`exponent`, rounded up to a whole number, without ever writing out a huge power."""
    if digits == 0:
        return 0
    if exponent + len(str(digits)) - 1 >= _BEYOND_DIGITS + _NANO_DIGITS:
        return _BEYOND * _NANO
    if exponent >= 0:
        return digits * int(10**exponent)
    if -exponent > _TEXT_MAX:
        return 1
    return -(-digits // int(10**-exponent))
