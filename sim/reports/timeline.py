"""How many actors ran, waited and were suspended over time, and how many GPUs were held: a panel for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.reports import wording
from sim.reports.axes import Linear, level_marks, time_marks
from sim.reports.elements import Markup, element, joined, number
from sim.reports.run import CLASSES, latest_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.replay.results import Timeline
    from sim.reports.run import Run, Runs

WIDTH: Final = 1080.0
LEFT: Final = 150.0
RIGHT: Final = 1068.0
_PANEL: Final = 92.0
_INSIDE: Final = 68.0
_TOP: Final = 14.0
_BELOW: Final = 26.0
_FLAT: Final = 0.05
"""Of a pixel: a point that is so near to the line between its neighbours is left out."""


@attrs.frozen
class _Panel:
    """What one panel shows, and which series of the result it is; a dashed line is the most that it could be."""

    title: str
    series: str
    dashed: str | None = None


PANELS: Final = (
    _Panel("actors running", "running"),
    _Panel("waiting", "waiting"),
    _Panel("suspended", "suspended"),
    _Panel("GPUs held", "held_gpus", dashed="gpus"),
)


def timeline(runs: Runs) -> Markup:
    """The panels, one below the other, over one axis of time."""
    x = Linear(0.0, latest_s(runs), LEFT, RIGHT)
    bottom = _TOP + _PANEL * len(PANELS) - (_PANEL - _INSIDE)
    height = bottom + _BELOW
    parts = [
        *time_axis(x, _TOP, bottom),
        *(part for index, panel in enumerate(PANELS) for part in _panel(panel, runs, x, _TOP + _PANEL * index)),
        element("line", class_="cross", x1=LEFT, x2=LEFT, y1=_TOP, y2=bottom),
    ]
    picture = element(
        "svg", *parts, viewBox=f"0 0 {number(WIDTH)} {number(height)}", role="img",
        aria_label="actors running, waiting and suspended, and GPUs held, over time",
    )  # fmt: skip
    return element("div", picture, class_="chart", id="timeline", data_left=LEFT, data_right=RIGHT, data_width=WIDTH)


def time_axis(x: Linear, top: float, bottom: float) -> Iterator[Markup]:
    """Lines at round times, and what they are."""
    for at_s in time_marks(x.high):
        place = x.at(at_s)
        yield element("line", class_="grid", x1=place, x2=place, y1=top, y2=bottom)
        anchor = "end" if place > x.end - 20 else "middle"  # half a word is as wide
        yield element("text", wording.seconds(at_s), class_="tick", x=place, y=bottom + 16, text_anchor=anchor)


def series_of(result_timeline: Timeline, name: str) -> list[float]:
    """One of its series by name."""
    found: list[float] = getattr(result_timeline, name)
    return found


def script_data(runs: Runs) -> dict[str, Any]:
    """What the page's script shows of it under the pointer."""
    return {
        "end_s": latest_s(runs),
        "panels": [panel.title for panel in PANELS],
        "runs": [
            {
                "label": run.label,
                "bucket_s": run.result.timeline.bucket_s,
                "series": [series_of(run.result.timeline, panel.series) for panel in PANELS],
            }
            for run in runs
        ],
    }


def _panel(panel: _Panel, runs: Runs, x: Linear, top: float) -> Iterator[Markup]:
    most, top_level = (
        max(max(series_of(run.result.timeline, name), default=0.0) for run in runs)
        for name in (panel.series, panel.dashed or panel.series)
    )
    marks = level_marks(max(most, top_level))
    y = Linear(0.0, marks[-1], top + _INSIDE, top + 4)
    yield element("text", panel.title, class_="name", x=0, y=top + 20)
    yield element("text", f"at most {wording.level(most)}", class_="tick", x=0, y=top + 38)
    for value in marks:
        place = y.at(value)
        yield element("line", class_="grid", x1=x.begin, x2=x.end, y1=place, y2=place)
        yield element("text", wording.count(value), class_="tick", x=x.begin - 6, y=place + 4, text_anchor="end")
    if top_level > most:
        yield element("text", "dashed: all of them", class_="tick", x=0, y=top + 53)
    for run, colour in zip(runs, CLASSES, strict=False):
        if panel.dashed is not None and (points := list(_points(run, panel.dashed, x, y))):
            yield element("path", class_=f"line dashed {colour}", d=_path(points))
        points = list(_points(run, panel.series, x, y))
        if len(runs) == 1:
            yield element("path", class_=f"area {colour}", d=f"{_path(points)}V{number(y.begin)}H{number(x.begin)}Z")
        yield element("path", class_=f"line {colour}", d=_path(points))


def _points(run: Run, series: str, x: Linear, y: Linear) -> Iterator[tuple[float, float]]:
    """A step for each bucket: what is told of it is its mean."""
    told, end_s = run.result.timeline, run.result.virtual_s
    for index, value in enumerate(series_of(told, series)):
        begin_s = index * told.bucket_s
        yield x.at(begin_s), y.at(value)
        yield x.at(min(begin_s + told.bucket_s, max(end_s, begin_s))), y.at(value)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Through all points; those in the middle of a straight piece are left out."""
    kept: list[tuple[float, float]] = []
    for point in points:
        while len(kept) > 1 and _same_level(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return "".join(f"{'L' if index else 'M'}{number(x)} {number(y)}" for index, (x, y) in enumerate(kept)) or "M0 0"


def _same_level(before: tuple[float, float], middle: tuple[float, float], after: tuple[float, float]) -> bool:
    return abs(before[1] - middle[1]) < _FLAT and abs(middle[1] - after[1]) < _FLAT


def note(runs: Runs) -> Markup:
    """How fine the lines are: a peak that is shorter is higher than it is drawn."""
    widths = " and ".join(dict.fromkeys(wording.seconds(run.result.timeline.bucket_s) for run in runs))
    return element("p", f"Every point is the mean of {widths}.", class_="note")


def legend(runs: Runs) -> Markup:
    """Whose colour is which; nothing where there is one run."""
    if len(runs) == 1:
        return Markup()
    return element(
        "p",
        joined(
            element("span", element("span", class_=f"swatch {colour}"), run.label, class_="key")
            for run, colour in zip(runs, CLASSES, strict=False)
        ),
        class_="legend",
    )
