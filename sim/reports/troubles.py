"""What went wrong: failures by reason, faults of the trace, invariants that were violated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.invariants.violation import Tally
from sim.reports import timeline, wording
from sim.reports.axes import Linear
from sim.reports.elements import Markup, element, joined, number
from sim.reports.run import CLASSES
from statemachine.catalogue import CATALOGUE
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.replay.results import FaultCount
    from sim.reports.run import Runs

_WIDTH: Final = 240.0
_BAR: Final = 8.0
_WORDS: Final = frozenset(Reason)


def failures(runs: Runs) -> Markup:
    """A row for each reason, the commonest first."""
    names = {name for run in runs for name in run.result.failures}
    if not names:
        return element("p", "Nothing failed.", class_="note")
    counts = {name: [run.result.failures.get(name, 0) for run in runs] for name in names}
    order = sorted(names, key=lambda name: (-max(counts[name]), name))
    x = Linear(0.0, max(max(each) for each in counts.values()), 0.0, _WIDTH)
    head = ["reason", "", *(f">{run.label}" if len(runs) > 1 else ">how often" for run in runs), "what it means"]
    rows = [
        element(
            "tr", element("th", name), element("td", _bars(counts[name], x), class_="plot"),
            *(element("td", wording.count(each), class_="n") for each in counts[name]), element("td", _sentence(name)),
        )
        for name in order
    ]  # fmt: skip
    return joined((timeline.legend(runs), _table(head, rows)))


def faults(runs: Runs) -> Markup:
    """What the traces let go wrong, and how often it found somebody; nothing where there is no fault in a trace."""
    names = sorted({name for run in runs for name in run.result.faults})
    if not names:
        return Markup()
    rows = [
        element("tr", element("th", name), *(element("td", _fired(run.result.faults.get(name))) for run in runs))
        for name in names
    ]
    head = ["fault of the trace", *(run.label if len(runs) > 1 else "how often" for run in runs)]
    return _table(head, rows)


def invariants(runs: Runs) -> Markup:
    """What was looked at, how often; and the first violations, word by word."""
    names = sorted({name for run in runs for name in run.result.invariants})
    rows = [
        element("tr", element("th", name), *(cell for run in runs for cell in _tally(run.result.invariants.get(name))))
        for name in names
    ]
    head = ["invariant", *(word for run in runs for word in (_of(run.label, runs, "looked at"), ">violated"))]
    told = [violation for run in runs for violation in run.result.violations]
    words = [element("ul", *(element("li", each, class_="bad") for each in told))] if told else []
    return joined((_table(head, rows), *words))


def _fired(found: FaultCount | None) -> str:
    return f"{wording.count(found.planned)} planned, {wording.count(found.fired)} fired" if found else "-"


def _tally(found: Tally | None) -> Iterator[Markup]:
    told = found or Tally()
    yield element("td", wording.count(told.checked), class_="n")
    yield element("td", wording.count(told.violated), class_="n bad" if told.violated else "n")


def _of(label: str, runs: Runs, word: str) -> str:
    return f">{label}: {word}" if len(runs) > 1 else f">{word}"


def _bars(counts: list[int], x: Linear) -> Markup:
    height = _BAR * len(counts) + 4
    bars = [
        element(
            "rect", class_=f"bar {colour}", x=0, y=2 + _BAR * index, height=_BAR - 1, rx=1,
            width=max(x.at(each), 1.0) if each else 0.0,
        )
        for index, (each, colour) in enumerate(zip(counts, CLASSES, strict=False))
    ]  # fmt: skip
    return element("svg", *bars, viewBox=f"0 0 {number(_WIDTH)} {number(height)}", aria_hidden="true")


def _sentence(name: str) -> str:
    return CATALOGUE[Reason(name)].sentence if name in _WORDS else ""


def _table(head: list[str], rows: list[Markup]) -> Markup:
    """`head` has a `>` before what is a number."""
    titles = [element("th", word.removeprefix(">"), class_="n" if word.startswith(">") else None) for word in head]
    return element("table", element("thead", element("tr", *titles)), element("tbody", *rows))
