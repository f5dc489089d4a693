"""What a scalar is worth to the field that takes it: the Go library resolves a plain scalar first, then turns it back.

So `007` is "7" where text is wanted, `on` is "true", and `1:0`, which base 60 would make 60, stays what it is.
Source: YAML 1.1 as Go's YAML library (goyaml.v2) resolves it, and JSON numbers as encoding/json reads them.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from typing import Final, TypeAlias

from actors.document.values import Plain

Resolved: TypeAlias = "str | int | float | bool | None"

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_KEY_MAX: Final = (1 << 63) - 1
_KEY_WORDS: Final = {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*+)")
_OTHER_BASE: Final = re.compile(r"([-+]?)0(?:[xX]([0-9a-fA-F]++)|[bB]([01]++)|[oO]?([0-7]++))")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?")
_DOTTED_FLOAT: Final = re.compile(r"\.[0-9](?:_?[0-9])*+(?:[eE][-+]?[0-9](?:_?[0-9])*+)?")
_NUMBER_STARTS: Final = frozenset("+-0123456789")
_DIGITS_MAX: Final = 400
"""Longer runs of digits are beyond every float; Python refuses to turn thousands of them into an int."""
_SHORT_DIGITS_MAX: Final = 18
_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1
_SINGLE_DIGITS_MAX: Final = 9
"""As many tell every float of 32 bits from its neighbours."""
_EXPONENT_LEAST: Final = -4
_EXPONENT_END: Final = 6
_FLOAT_INT_END: Final = 1e21
"""From here on JSON writers in Go use an exponent, which no integer field reads."""


def is_null(value: object) -> bool:
    """Whether a value is null: absent, for every type of field."""
    return value is None or (type(value) is Plain and _WORDS.get(value, value) is None)


def resolved(plain: str) -> Resolved:
    """What a plain scalar is by itself."""
    if plain in _WORDS:
        return _WORDS[plain]
    first = plain[0]
    if first == ".":
        return _float(plain) if _DOTTED_FLOAT.fullmatch(plain) else str(plain)
    if first not in _NUMBER_STARTS or len(plain) > _DIGITS_MAX:
        return str(plain)
    return _number(plain.replace("_", ""), plain)


def as_text(value: Plain | bool) -> str:  # noqa: FBT001  (a boolean of the document, no switch)
    """The text that a field of type string gets from a value that is none."""
    inner = value if isinstance(value, bool) else resolved(value)
    if isinstance(inner, bool):
        return "true" if inner else "false"
    if inner is None:
        return ""
    return _shortest(inner) if isinstance(inner, float) else str(inner)


def as_int(plain: Plain) -> int | None:
    """The integer that a plain scalar is; None when it is something else. A float without a fraction is one."""
    if plain.isdecimal() and plain.isascii() and plain[0] != "0" and len(plain) <= _SHORT_DIGITS_MAX:
        # What nearly every number looks like.
        return int(plain)
    inner = resolved(plain)
    if isinstance(inner, float) and inner.is_integer() and abs(inner) < _FLOAT_INT_END:
        return int(inner)
    return inner if isinstance(inner, int) and not isinstance(inner, bool) else None


def plain_key(plain: str) -> str | None:
    """The text of a plain key: as any text, but infinities keep their words; null is no key, nor is a huge number."""
    value = resolved(plain)
    if value is None or (isinstance(value, int) and value > _KEY_MAX):
        return None
    text = as_text(Plain(plain))
    return _KEY_WORDS.get(text, text)


def _number(digits: str, written: str) -> Resolved:
    whole = _whole(digits)
    if whole is not None and _INT_MIN <= whole <= _INT_MAX:
        return whole
    return _float(digits, written) if _FLOAT.fullmatch(digits) else str(written)


def _whole(digits: str) -> int | None:
    if _DECIMAL.fullmatch(digits):
        return int(digits)
    found = _OTHER_BASE.fullmatch(digits)
    if found is None:
        return None
    sign, hexadecimal, binary, octal = found.groups()
    value = int(hexadecimal, 16) if hexadecimal else int(binary, 2) if binary else int(octal, 8)
    return -value if sign == "-" else value


def _float(digits: str, written: str = "") -> Resolved:
    value = float(digits)
    return str(written or digits) if math.isinf(value) else value


def _shortest(number: float) -> str:
    """The shortest text that is this number again in 32 bits, with an exponent from a million on: what Go writes."""
    single = _single(number)
    if math.isnan(single):
        return "NaN"
    if math.isinf(single):
        return "+Inf" if single > 0 else "-Inf"
    texts = (f"{single:.{digits}e}" for digits in range(_SINGLE_DIGITS_MAX))
    exact = Decimal(next(text for text in texts if _single(float(text)) == single)).normalize()
    if _EXPONENT_LEAST <= exact.adjusted() < _EXPONENT_END or not single:
        return f"{exact:f}"
    sign, (first, *others), _ = exact.as_tuple()
    fraction = "." + "".join(map(str, others)) if others else ""
    return f"{'-' if sign else ''}{first}{fraction}e{exact.adjusted():+03d}"


def _single(number: float) -> float:
    """The nearest float of 32 bits."""
    try:
        (single,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(single)
