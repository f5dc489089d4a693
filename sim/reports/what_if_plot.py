"""The plot of a what-if table: p95 of the activations by cost; in its page, or as a picture of its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sim.reports import wording
from sim.reports.axes import Linear, Logarithmic, even_marks, finer
from sim.reports.elements import Markup, element, number
from sim.reports.page import style

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.reports.what_if import Cell, WhatIf

_WIDTH: Final = 1080.0
_LEFT: Final = 70.0
_PLOT: Final = 282.0
_BELOW: Final = 44.0
_KEY: Final = 134.0
_KEYS: Final = 7
"""In a row."""
_KEY_ROW: Final = 20.0
_COUNTS: Final = 40.0
_COUNTS_AT: Final = 14.0
"""Of the space above the plot, where its numbers of workers are."""
_COUNT: Final = 24.0
"""Pixels that a number of workers needs."""
_COSTS: Final = 8


def plot(table: WhatIf, **attributes: str) -> Markup:
    """A line for each idle timeout, with a point for each number of workers: cost to the right, p95 upwards."""
    keys = 14.0 + _KEY_ROW * math.ceil(len(table.idle_timeouts_s) / _KEYS)
    top = keys + _COUNTS
    costs = even_marks(max(cell.cost_per_hour for cell in table.cells), _COSTS)
    x = Linear(0.0, costs[-1], _LEFT, _WIDTH - 20.0)
    told = [cell.p95_s for cell in table.cells if cell.activations and cell.p95_s > 0] or [1.0]
    told += [table.p95_s] if table.p95_s else []
    y = finer(min(told), max(told), top + _PLOT, top)
    parts = [*_keys(table), *_axes(x, y, costs), *_counts(table, x, keys), *_wanted(table, x, y)]
    for index, timeout_s in enumerate(table.idle_timeouts_s):
        line = [cell for cell in table.cells if cell.idle_timeout_s == timeout_s and cell.activations]
        parts += _line(line, _series(index), x, y)
    if table.chosen is not None:
        parts.append(
            element("circle", class_="chosen", cx=x.at(table.chosen.cost_per_hour), cy=y.at(table.chosen.p95_s), r=9)
        )
    return element(
        "svg", *parts, viewBox=f"0 0 {number(_WIDTH)} {number(top + _PLOT + _BELOW)}", role="img",
        aria_label="p95 of the activations by cost, a line for each idle timeout", **attributes,
    )  # fmt: skip


def picture(table: WhatIf) -> bytes:
    """The plot alone, as a file that a browser or a document shows."""
    svg = plot(table, xmlns="http://www.w3.org/2000/svg", class_="alone")
    begin, rest = svg.split(">", 1)
    return f"{begin}>{element('style', Markup(style()))}{rest}\n".encode()


def idle(timeout_s: float) -> str:
    """An idle timeout for a person."""
    return "never" if math.isinf(timeout_s) else wording.seconds(timeout_s)


def _keys(table: WhatIf) -> Iterator[Markup]:
    for index, timeout_s in enumerate(table.idle_timeouts_s):
        x, y = _LEFT + _KEY * (index % _KEYS), _KEY_ROW * (index // _KEYS)
        yield element("rect", class_=f"point {_series(index)}", x=x, y=y + 1, width=11, height=11, rx=3)
        yield element("text", f"idle {idle(timeout_s)}", x=x + 17, y=y + 11)


def _axes(x: Linear, y: Logarithmic, costs: Sequence[float]) -> Iterator[Markup]:
    for mark in y.marks:
        place = y.at(mark)
        yield element("line", class_="grid", x1=x.begin, x2=x.end, y1=place, y2=place)
        yield element("text", wording.decade(mark), class_="tick", x=x.begin - 6, y=place + 4, text_anchor="end")
    for value in costs:
        place = x.at(value)
        yield element("line", class_="grid", x1=place, x2=place, y1=y.end, y2=y.begin)
        yield element("text", f"{value:,g}", class_="tick", x=place, y=y.begin + 16, text_anchor="middle")
    yield element(
        "text", "cost an hour, by the config's prices", class_="tick", x=x.end, y=y.begin + 34, text_anchor="end"
    )
    yield element("text", "p95 of the activations", class_="tick", x=4, y=y.end - 8)


def _counts(table: WhatIf, x: Linear, keys: float) -> Iterator[Markup]:
    """How many workers it is that cost so much: a number above each, where there is room for it."""
    y, free = keys + _COUNTS_AT, x.begin
    yield element("text", "workers", class_="tick", x=4, y=y)
    for count in sorted(set(table.workers)):
        costs = [cell.cost_per_hour for cell in table.cells if cell.workers == count]
        place = x.at(sum(costs) / len(costs))
        if place >= free:
            free = place + _COUNT
            yield element("text", wording.count(count), class_="tick", x=place, y=y, text_anchor="middle")


def _wanted(table: WhatIf, x: Linear, y: Logarithmic) -> Iterator[Markup]:
    if table.p95_s:
        place = y.at(table.p95_s)
        title = element("title", f"p95 is to be {wording.seconds(table.p95_s)} at most")
        yield element("line", title, class_="wanted", x1=x.begin, x2=x.end, y1=place, y2=place)


def _line(cells: Sequence[Cell], kind: str, x: Linear, y: Logarithmic) -> Iterator[Markup]:
    ordered = sorted(cells, key=lambda cell: cell.workers)
    places = [(x.at(cell.cost_per_hour), y.at(cell.p95_s)) for cell in ordered]
    path = "".join(f"{'L' if index else 'M'}{number(a)} {number(b)}" for index, (a, b) in enumerate(places))
    yield element("path", class_=f"line {kind}", d=path)
    for cell, (a, b) in zip(ordered, places, strict=True):
        words = (
            f"{wording.several(cell.workers, 'worker')}, idle {idle(cell.idle_timeout_s)}: "
            f"p95 {wording.seconds(cell.p95_s)}, {wording.several(cell.activations, 'activation')}, "
            f"cost {wording.amount(cell.cost_per_hour)} an hour"
        )
        empty = " empty" if cell.waiting else ""
        yield element("circle", element("title", words), class_=f"point {kind}{empty}", cx=a, cy=b, r=4.5)


def _series(index: int) -> str:
    """The class of a line: there are six colours."""
    return f"series-{index % 6}"
