"""The page of a what-if table: p95 by workers and idle timeout, a plot of what it costs, and all figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sim.reports import wording
from sim.reports.elements import Markup, element, joined
from sim.reports.page import document, section
from sim.reports.what_if_plot import idle, plot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.reports.what_if import Cell, WhatIf

COLUMNS: Final = (
    "workers", "GPUs", "idle timeout", "p50", "p95", "slowest", "activations", "density", "GPU time held",
    "cost an hour", "failures", "ended Failed", "waiting",
)  # fmt: skip


def what_if_page(table: WhatIf) -> bytes:
    """The whole page."""
    title = f"What if: {table.source}"
    parts = [
        element("h1", title),
        element("p", _about(table), class_="about"),
        *([element("p", answer(table), class_="answer")] if table.p95_s is not None else []),
        section("p95 of the activations", _grid(table)),
        section("What it costs to be quick", element("div", plot(table), class_="chart")),
        section("All figures", _figures(table)),
    ]
    return document(title, parts, {})


def _about(table: WhatIf) -> str:
    return (
        f"{wording.several(len(table.cells), 'replay')} in the fast engine, seed {table.seed}. Workers are there from "
        "the beginning to the end; the idle timeout alone suspends. An activation is whoever had to be brought to "
        "Running: who is asked for something while running waits for nothing, and is in no figure."
    )


def answer(table: WhatIf) -> str:
    """The cheapest that is quick enough, in a sentence."""
    wanted = f"p95 of {wording.seconds(table.p95_s or 0.0)} or less"
    if table.chosen is None:
        return f"None of these serves everybody with {wanted}."
    failed = f", {wording.count(table.chosen.failed)} ended Failed" if table.chosen.failed else ""
    return (
        f"{wanted} at the least cost: {wording.several(table.chosen.workers, 'worker')}, idle timeout "
        f"{idle(table.chosen.idle_timeout_s)}: p95 {told(table.chosen, table.chosen.p95_s)}, density "
        f"{wording.amount(table.chosen.density)}, cost {wording.amount(table.chosen.cost_per_hour)} an hour{failed}."
    )


def told(cell: Cell, activation_s: float) -> str:
    """How long activations took, where there were any."""
    return wording.seconds(activation_s) if cell.activations else "-"


def rows(table: WhatIf) -> Iterator[tuple[str, ...]]:
    """All figures, in the order of `COLUMNS`."""
    for cell in table.cells:
        yield (
            wording.count(cell.workers), wording.count(cell.gpus), idle(cell.idle_timeout_s),
            told(cell, cell.p50_s), told(cell, cell.p95_s), told(cell, cell.max_s),
            wording.count(cell.activations), wording.amount(cell.density), wording.share(cell.held),
            wording.amount(cell.cost_per_hour), wording.count(cell.failures), wording.count(cell.failed),
            wording.count(cell.waiting),
        )  # fmt: skip


def _grid(table: WhatIf) -> Markup:
    titles = [element("th", f"idle {idle(each)}", class_="n") for each in table.idle_timeouts_s]
    head = element("tr", element("th", "workers"), *titles)
    width = len(table.idle_timeouts_s)
    lines = [
        element(
            "tr",
            element("th", wording.count(workers)),
            *(_in_grid(cell, table) for cell in table.cells[index * width : (index + 1) * width]),
        )
        for index, workers in enumerate(table.workers)
    ]
    note = (
        "Below each: density, cost, activations, who found no room or failed. Grey ones are too slow, or leave "
        "somebody waiting."
    )
    whole = element("table", element("thead", head), element("tbody", *lines))
    return joined((element("p", note, class_="note"), whole))


def _in_grid(cell: Cell, table: WhatIf) -> Markup:
    left = [f"{wording.count(cell.waiting)} wait"] if cell.waiting else []
    left += [f"{wording.count(cell.failed)} failed"] if cell.failed else []
    words = f"{wording.amount(cell.density)} a GPU, {wording.amount(cell.cost_per_hour)} an hour"
    small = (
        element("small", each) for each in (words, ", ".join((wording.several(cell.activations, "activation"), *left)))
    )
    serves = cell.serves(math.inf if table.p95_s is None else table.p95_s)
    kind = "n" if serves else "n over"
    return element("td", told(cell, cell.p95_s), *small, class_=f"{kind} chosen" if cell == table.chosen else kind)


def _figures(table: WhatIf) -> Markup:
    head = element("tr", *(element("th", column, class_="n") for column in COLUMNS))
    lines = [
        element(
            "tr", *(element("td", word, class_="n") for word in row), class_="whole" if cell == table.chosen else None
        )
        for row, cell in zip(rows(table), table.cells, strict=True)
    ]
    return element("table", element("thead", head), element("tbody", *lines))
