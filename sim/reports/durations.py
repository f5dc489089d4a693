"""How long every step took: a table with a picture in each row, on a logarithmic scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.reports import wording
from sim.reports.axes import Logarithmic, decades
from sim.reports.elements import Markup, element, joined, number
from sim.reports.run import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.reports.run import Run, Runs

ACTIVATION: Final = ("wait", "assign", "detect", "generate", "partition", "inject", "create", "restore", "verify")
"""The steps of an activation, in their order; `inject` fetches a snapshot from its store as well."""
SUSPENDING: Final = ("suspend", "release", "thaw")
WHOLE_ACTIVATION: Final = "activation, whole"
WHOLE_SUSPEND: Final = "suspend, whole"
COLUMNS: Final = ("p50", "p95", "p99", "max")
LEAST_S: Final = 1e-3
_WIDTH: Final = 420.0
_HEIGHT: Final = 20.0


def durations(runs: Runs) -> Markup:
    """The table: a row for each step, and in a comparison one for each run in it."""
    names = _names(runs)
    most = max((float(found["max"]) for run in runs for name in names if (found := of(run, name))), default=1.0)
    scale = decades(LEAST_S, max(most, LEAST_S), 4.0, _WIDTH - 4.0)
    head = element(
        "tr", element("th", "step"), element("th", _marks(scale), class_="plot"),
        *(element("th", column, class_="n") for column in (*COLUMNS, "how often", "in all")),
    )  # fmt: skip
    rows = [row for name in names for row in _rows(name, runs, scale)]
    return element("table", element("thead", head), element("tbody", *rows), class_="durations")


def of(run: Run, name: str) -> Mapping[str, float] | None:
    """What a run tells of one row; None if there was none of it."""
    whole = {WHOLE_ACTIVATION: run.result.activation_s, WHOLE_SUSPEND: run.result.suspend_s}
    found = whole.get(name) or run.result.steps.get(name)
    return found if found and found["count"] else None


def _names(runs: Runs) -> list[str]:
    """In the order of a life; what is not known here comes last."""
    known = (WHOLE_ACTIVATION, *ACTIVATION, WHOLE_SUSPEND, *SUSPENDING)
    others = sorted({name for run in runs for name in run.result.steps} - set(known))
    return [name for name in (*known, *others) if any(of(run, name) for run in runs)]


def _rows(name: str, runs: Runs, scale: Logarithmic) -> Iterator[Markup]:
    is_whole = name in {WHOLE_ACTIVATION, WHOLE_SUSPEND}
    for index, (run, colour) in enumerate(zip(runs, CLASSES, strict=False)):
        found = of(run, name)
        title = [] if index else [element("th", name, scope="rowgroup", rowspan=str(len(runs)))]
        kind = " ".join(word for word in ("whole" if is_whole else "", "first" if not index else "") if word)
        if found is None:
            empty = [element("td", "-", class_="n") for _ in range(6)]
            yield element("tr", *title, element("td", class_="plot"), *empty, class_=kind or None)
            continue
        figures = [wording.seconds(found[column]) for column in COLUMNS]
        figures += [wording.count(found["count"]), wording.seconds(found["count"] * found.get("mean", found["p50"]))]
        cells = [element("td", figure, class_="n") for figure in figures]
        plot = element("td", _bar(found, scale, colour, f"{run.label}: {name}"), class_="plot")
        yield element("tr", *title, plot, *cells, class_=kind or None)


def _bar(found: Mapping[str, float], scale: Logarithmic, colour: str, label: str) -> Markup:
    """Thick from the median to p95, thin to the longest, a mark at p99."""
    middle = _HEIGHT / 2
    p50, p95, p99, longest = (scale.at(found[column]) for column in COLUMNS)
    told = ", ".join(f"{column} {wording.seconds(found[column])}" for column in COLUMNS)
    return element(
        "svg",
        element("title", f"{label}: {told}"),
        *_grid(scale),
        element("line", class_=f"line {colour}", x1=p50, x2=longest, y1=middle, y2=middle),
        element("rect", class_=f"bar {colour}", x=p50, y=middle - 4, width=max(p95 - p50, 2.0), height=8, rx=2),
        element("line", class_=f"mark {colour}", x1=p99, x2=p99, y1=middle - 6, y2=middle + 6),
        element("circle", class_=f"bar {colour}", cx=longest, cy=middle, r=2.5),
        viewBox=f"0 0 {number(_WIDTH)} {number(_HEIGHT)}",
        role="img",
    )


def _grid(scale: Logarithmic) -> Iterator[Markup]:
    for mark in scale.marks:
        yield element("line", class_="grid", x1=scale.at(mark), x2=scale.at(mark), y1=0, y2=_HEIGHT)


def _marks(scale: Logarithmic) -> Markup:
    def text(mark: float) -> Markup:
        place = scale.at(mark)
        anchor = {scale.begin: "start", scale.end: "end"}.get(place, "middle")
        return element("text", wording.decade(mark), class_="tick", x=place, y=14, text_anchor=anchor)

    marks = joined(text(mark) for mark in scale.marks)
    return element("svg", marks, viewBox=f"0 0 {number(_WIDTH)} {number(_HEIGHT)}", aria_hidden="true")
