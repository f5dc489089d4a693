"""Numbers as a person reads them."""

from __future__ import annotations

from typing import Any, Final

_LEAST_S: Final = 1e-5
"""What is less is nothing: no step takes so little."""
_SECOND_S: Final = 0.9995
_MINUTE_S: Final = 59.95
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_EVEN: Final = 1e-9
_MILLION: Final = 1e6
_THOUSANDS: Final = 10_000.0
_HUNDREDTH: Final = 0.01


def seconds(value_s: float) -> str:
    """How long something took: `4 ms`, `395 ms`, `11.8 s`, `3 min 20 s`, `2 h 5 min`."""
    if value_s < _LEAST_S:
        return "0 s"
    if value_s < _SECOND_S:
        return f"{value_s * 1000:.3g} ms"
    if value_s < _MINUTE_S:
        return f"{value_s:.3g} s"
    for unit_s, unit, lesser_s, lesser in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", 60.0, "min"),
        (60.0, "min", 1.0, "s"),
    ):
        whole = round(value_s / lesser_s)
        per = round(unit_s / lesser_s)
        if whole >= per:
            rest = f" {whole % per} {lesser}" if whole % per else ""
            return f"{count(whole // per)} {unit}{rest}"
    return f"{value_s:.0f} s"


def clock(at_s: float) -> str:
    """A time of a replay, since its beginning: `0:00:07`, `1 d 03:20:00`."""
    whole = int(at_s)
    days, rest = divmod(whole, int(_DAY_S))
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text


def decade(value_s: float) -> str:
    """A mark of a logarithmic scale: `1 ms`, `100 s`."""
    return f"{value_s:g} s" if value_s >= 1 else f"{value_s * 1000:g} ms"


def count(value: float) -> str:
    """A number of things, with its thousands apart."""
    return f"{value:,.0f}"


def several(number: int, thing: str) -> str:
    """`1 worker`, `1,213 workers`."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def level(value: float) -> str:
    """A mean number of things: whole where it is."""
    return count(value) if abs(value - round(value)) < _EVEN or value >= 100 else f"{value:.1f}"  # noqa: PLR2004 - a tenth says nothing then


def share(value: float) -> str:
    """A part of a whole."""
    return f"{value:.1%}"


def amount(value: float) -> str:
    """Any other number: money, actors by GPU. As short as a tile needs it."""
    if value >= _MILLION:
        return f"{value / _MILLION:,.1f} M"
    if 0 < value < _HUNDREDTH:
        return f"{value:.2g}"
    return f"{value:,.2f}" if value < _THOUSANDS else count(value)


def setting(value: Any) -> str:
    """A value of the config; of a distribution its kind and its measures."""
    if isinstance(value, dict):
        words = (f"{name} {setting(each)}" for name, each in value.items() if name not in {"kind", "source"})
        return f"{value['kind']} ({', '.join(words)})" if "kind" in value else ", ".join(words)
    return f"{value:g}" if isinstance(value, float) else str(value)


def points(before: float, after: float) -> str:
    """How a part of a whole changed: in hundredths of the whole, since percents of percents mislead."""
    return f"{(after - before) * 100:+.1f} points"


def change(before: float, after: float) -> str:
    """How much more or less it became: `+12%`, `x3.4`, `new`."""
    if before == after:
        return "same"
    if before <= 0:
        return "new" if after > 0 else "-"
    times = after / before
    if times >= 2:  # noqa: PLR2004 - from twice on, how many times is easier to read
        return f"x{times:.3g}"
    percent = (times - 1) * 100
    return f"{percent:+.1f}%" if abs(percent) < 10 else f"{percent:+.0f}%"  # noqa: PLR2004 - a tenth says nothing then
