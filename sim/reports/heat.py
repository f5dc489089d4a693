"""The heat map: how much of each worker's GPUs was held when. A small picture, so that a large fleet is no larger."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from sim.reports import wording
from sim.reports.axes import Linear
from sim.reports.elements import Markup, element, number
from sim.reports.run import latest_s
from sim.reports.timeline import LEFT, RIGHT, WIDTH, time_axis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.replay.results import Occupancy
    from sim.reports.run import Run, Runs

COLOUR: Final = (47, 125, 224)
"""Of a GPU that is held; free ones let the page shine through, be it light or dark."""
PERCENT: Final = 100
ABSENT: Final = PERCENT + 1
"""The place in the palette of a worker that was not there."""
ABSENT_COLOUR: Final = (128, 128, 128)
_ABSENT_OPACITY: Final = 0.35
_TOP: Final = 6.0
_BELOW: Final = 24.0
_ROW_MAX: Final = 18.0
_HEIGHT_MAX: Final = 520.0
_LABEL: Final = 13.0
"""Pixels that a name needs."""
_NAME_MAX: Final = 20
"""Characters that have room beside the picture."""


def heat_map(run: Run, runs: Runs) -> Markup:
    """One run's; all of a page have the same axis of time."""
    told, end_s = run.result.occupancy, run.result.virtual_s
    if not told.workers or not told.held[0]:
        return element("p", "No worker with GPUs.", class_="note")
    x = Linear(0.0, latest_s(runs), LEFT, RIGHT)
    row = min(_ROW_MAX, _HEIGHT_MAX / len(told.workers))
    bottom = _TOP + row * len(told.workers)
    picture = element(
        "image", class_="heat", x=LEFT, y=_TOP, width=max(x.at(end_s) - LEFT, 1.0), height=bottom - _TOP,
        preserveAspectRatio="none", href=f"data:image/png;base64,{base64.b64encode(png(_percents(told))).decode()}",
    )  # fmt: skip
    frame = element("rect", class_="frame", x=LEFT, y=_TOP, width=RIGHT - LEFT, height=bottom - _TOP)
    svg = element(
        "svg", *_names(told.workers, row), *time_axis(x, _TOP, bottom), frame, picture,
        viewBox=f"0 0 {number(WIDTH)} {number(bottom + _BELOW)}", role="img",
        aria_label="GPUs held by worker over time",
    )  # fmt: skip
    return element(
        "div", svg, class_="chart heatmap", data_left=LEFT, data_right=x.at(end_s), data_width=WIDTH, data_top=_TOP,
        data_bottom=bottom, data_run=str(runs.index(run)),
    )  # fmt: skip


def scale() -> Markup:
    """What the colours mean."""
    stops = [
        element("stop", offset="0", stop_color=_hex(), stop_opacity="0"),
        element("stop", offset="1", stop_color=_hex(), stop_opacity="1"),
    ]
    ramp = element(
        "svg",
        element("defs", element("linearGradient", *stops, id="ramp")),
        element("rect", class_="frame", x=0.5, y=0.5, width=119, height=9, fill="url(#ramp)"),
        viewBox="0 0 120 10",
        class_="ramp",
        aria_hidden="true",
    )
    swatch = element("span", class_="swatch absent")
    return element(
        "p", "no GPU held ", ramp, " all of its GPUs held ", swatch, "no such worker at that time", class_="legend"
    )


def script_data(runs: Runs) -> list[dict[str, Any]]:
    """What the page's script shows under the pointer: by worker, percents or ABSENT, each with its buckets."""
    return [
        {"workers": run.result.occupancy.workers, "bucket_s": run.result.timeline.bucket_s,
         "rows": [_run_lengths(row) for row in _percents(run.result.occupancy)]}
        for run in runs
    ]  # fmt: skip


def png(rows: Sequence[Sequence[int]]) -> bytes:
    """A picture with a pixel for each percentage; how much is held is how little it lets through.

    Source: PNG specification (third edition), 5.3 "Chunk layout", 11.2 "Critical chunks", 11.3.1 "Transparency".
    """
    palette = bytes(COLOUR) * (PERCENT + 1) + bytes(ABSENT_COLOUR)
    opacity = bytes((*(round(each * 255 / PERCENT) for each in range(PERCENT + 1)), round(255 * _ABSENT_OPACITY)))
    lines = b"".join(b"\0" + bytes(row) for row in rows)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, content)
        for kind, content in (
            (b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)),
            (b"PLTE", palette),
            (b"tRNS", opacity),
            (b"IDAT", zlib.compress(lines, 9)),
            (b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _percents(told: Occupancy) -> list[list[int]]:
    """A number for each worker and bucket: percents that were held, or ABSENT where that is told and nothing was."""
    there = told.up or [[1.0] * len(row) for row in told.held]
    return [
        [
            min(max(round(held * PERCENT), 0), PERCENT) if held or up else ABSENT
            for held, up in zip(row, ups, strict=True)
        ]
        for row, ups in zip(told.held, there, strict=True)
    ]


def _run_lengths(row: Sequence[int]) -> list[int]:
    """5, 5, 7 becomes 5, 2, 7, 1."""
    told: list[int] = []
    for value in row:
        if told and told[-2] == value:
            told[-1] += 1
        else:
            told += (value, 1)
    return told


def _names(workers: Sequence[str], row: float) -> Iterator[Markup]:
    """The names of all workers, or of so many as have room."""
    every = max(1, -int(-_LABEL // row))
    for index in range(0, len(workers), every):
        name = workers[index]
        short = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
        y = _TOP + row * index + max(row, _LABEL) / 2 + 4
        yield element("text", short, element("title", name), class_="tick", x=LEFT - 6, y=y, text_anchor="end")


def _hex() -> str:
    return "#" + bytes(COLOUR).hex()


def left_out(run: Run) -> str:
    """Which workers are shown, where it is not all of them."""
    shown, workers = len(run.result.occupancy.workers), run.result.workers
    return "" if shown == workers else f"the first {wording.count(shown)} of {wording.count(workers)} workers"
