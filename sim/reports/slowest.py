"""The slowest activations, and where their seconds went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.reports import wording
from sim.reports.axes import Linear
from sim.reports.durations import ACTIVATION
from sim.reports.elements import Markup, element, joined, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.replay.results import Slow
    from sim.reports.run import Run

SHOWN: Final = ("wait", "inject", "generate", "create", "restore", "verify")
"""Steps with a colour of their own; all others share one."""
OTHER: Final = "other"
_WIDTH: Final = 460.0
_HEIGHT: Final = 18.0


def slowest(run: Run) -> Markup:
    """A table of one run's."""
    if not run.result.slowest:
        return element("p", "No activation.", class_="note")
    head = [
        element("th", word, class_=kind)
        for word, kind in (("actor", None), ("worker", None), ("came to Running at", "n"), ("took", "n"), ("", "plot"))
    ]
    rows = [_row(each) for each in run.result.slowest]
    return element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_="slowest")


def legend(runs_steps: Mapping[str, object]) -> Markup:
    """The colours of the steps that occur."""
    names = [*(name for name in SHOWN if name in runs_steps), *([OTHER] if set(runs_steps) - set(SHOWN) else [])]
    keys = (element("span", element("span", class_=f"swatch step-{name}"), name, class_="key") for name in names)
    return element("p", joined(keys), class_="legend")


def _row(slow: Slow) -> Markup:
    return element(
        "tr",
        element("th", slow.actor),
        element("td", slow.worker),
        element("td", wording.clock(slow.at_s), class_="n"),
        element("td", wording.seconds(slow.activation_s), class_="n"),
        element("td", _segments(slow), class_="plot"),
    )


def _segments(slow: Slow) -> Markup:
    """Each as wide as the others, so that the short ones can be read too; how long it took stands beside it."""
    x = Linear(0.0, sum(slow.steps.values()), 0.0, _WIDTH)
    parts: list[Markup] = []
    so_far_s = 0.0
    order = {name: index for index, name in enumerate(ACTIVATION)}
    for name, took_s in sorted(slow.steps.items(), key=lambda each: (order.get(each[0], len(order)), each[0])):
        begin, end = x.at(so_far_s), x.at(so_far_s + took_s)
        so_far_s += took_s
        if end - begin >= 0.05:  # noqa: PLR2004 - pixels; nobody sees less
            title = element("title", f"{name}: {wording.seconds(took_s)}")
            step = name if name in SHOWN else OTHER
            parts.append(
                element("rect", title, class_=f"step-{step}", x=begin, y=3, width=end - begin, height=_HEIGHT - 6)
            )
    words = ", ".join(f"{name} {wording.seconds(took_s)}" for name, took_s in slow.steps.items())
    return element("svg", *parts, viewBox=f"0 0 {number(_WIDTH)} {number(_HEIGHT)}", role="img", aria_label=words)
