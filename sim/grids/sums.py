"""What came of a sweep, point by point: the table and the document of `greenroom sim sweep`.

The same rows are the same bytes, in whatever order they come.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from sim.chaos.plan import CONVERTER
from sim.chaos.summary import EXIT_CODES, Summary, added
from sim.chaos.summary import as_json as as_campaign
from sim.replay.results import Verdict

from .work import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .rows import Row
    from .work import Point

FORMAT: Final = 1
EXIT_VIOLATED: Final = 3
MEASURES: Final = (
    "activations", "activation_p50_s", "activation_p95_s", "activation_p99_s", "activation_max_s", "suspend_p95_s",
    "density", "held", "cost", "waiting", "failures", "transitions", "virtual_s",
)  # fmt: skip
"""Columns of which each point tells mean, least and most over its seeds."""


@attrs.define
class PointSum:
    """The rows of one point.

    Attributes:
        point: which.
        runs: how many rows.
        violated: how many of them are not as they must be.
        values: of each measure, by column.
    """

    point: Point
    runs: int = 0
    violated: int = 0
    values: dict[str, list[float]] = attrs.field(factory=dict)

    def take(self, row: Row) -> None:
        """One more."""
        self.runs += 1
        self.violated += row.violated > 0
        for name in MEASURES:
            if (value := getattr(row, name)) is not None:
                self.values.setdefault(name, []).append(float(value))

    def mean(self, name: str) -> float | None:
        """Of a column; None where it has no values."""
        values = self.values.get(name)
        return math.fsum(values) / len(values) if values else None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        told = {
            name: {"mean": round(self.mean(name) or 0.0, 6), "min": min(values), "max": max(values)}
            for name, values in sorted(self.values.items())
        }
        point = self.point
        labels = {"trace": point.trace, "engine": point.engine, "config": point.config, "overrides": point.overrides}
        return {**labels, "runs": self.runs, "violated": self.violated, **told}


@attrs.define
class Sums:
    """All of a sweep.

    Attributes:
        kind: of its runs.
        points: with their rows.
        kept: rows that were there before.
        cpu_s: of all rows, whoever made them.
        campaign: the sum of a campaign; None for replays.
    """

    kind: Kind
    points: list[PointSum]
    kept: int = 0
    cpu_s: float = 0.0
    campaign: Summary | None = None

    @classmethod
    def of(cls, points: Sequence[Point]) -> Sums:
        """Nothing yet of these."""
        kind = points[0].kind
        return cls(kind, [PointSum(each) for each in points], campaign=Summary() if kind is Kind.CHAOS else None)

    def take(self, rows: Iterable[Row], numbers: Mapping[str, Sequence[int]]) -> None:
        """Some more rows; `numbers` are those of the points of each key."""
        parts: list[Summary] = []
        for row in rows:
            for number in numbers[row.key]:
                self.points[number].take(row)
            self.cpu_s += row.cpu_s
            if self.campaign is not None:
                parts.append(CONVERTER.structure(orjson.loads(row.document), Summary))
        if self.campaign is not None:
            self.campaign = added([self.campaign, *parts])

    @property
    def verdict(self) -> str:
        """The gravest of all rows."""
        if self.campaign is not None:
            return str(self.campaign.phase or "ok")
        return str(Verdict.VIOLATED if any(each.violated for each in self.points) else Verdict.HELD)

    @property
    def exit_code(self) -> int:
        """As of `sim replay` and `sim chaos`."""
        if self.campaign is not None:
            return EXIT_CODES[self.campaign.phase] if self.campaign.phase is not None else 0
        return EXIT_VIOLATED if self.verdict == Verdict.VIOLATED else 0

    def document(self) -> dict[str, Any]:
        """As JSON has it, but for what only the command knows."""
        return {
            "v": FORMAT,
            "kind": "GreenroomSweep",
            "of": str(self.kind),
            "kept": self.kept,
            "points": [each.document() for each in self.points],
            "campaign": None if self.campaign is None else as_campaign(self.campaign),
            "cpu_s": round(self.cpu_s, 1),
            "verdict": self.verdict,
        }

    def table(self) -> Iterator[tuple[str, ...]]:
        """For a person: what differs from point to point, and the means of what came of it."""
        axes = list(dict.fromkeys(name for each in self.points for name in each.point.overrides))
        traces = len({each.point.trace for each in self.points}) > 1
        engines = len({each.point.engine for each in self.points}) > 1
        shown = [(name, words) for name, words in _SHOWN if any(name in each.values for each in self.points)]
        yield (
            *(["TRACE"] if traces else []),
            *(["ENGINE"] if engines else []),
            *(name.rpartition(".")[2].upper() for name in axes),
            "RUNS",
            *(words for _name, words in shown),
            "VIOLATED",
        )
        for each in self.points:
            means = [each.mean(name) for name, _words in shown]
            yield (
                *([str(each.point.trace)] if traces else []),
                *([each.point.engine] if engines else []),
                *(each.point.overrides.get(name, "") for name in axes),
                str(each.runs),
                *("" if mean is None else f"{mean:.3f}" for mean in means),
                str(each.violated),
            )


_SHOWN: Final = (
    ("activations", "ACTIVATIONS"), ("activation_p50_s", "P50 S"), ("activation_p95_s", "P95 S"),
    ("activation_max_s", "MAX S"), ("suspend_p95_s", "SUSPEND P95 S"), ("density", "DENSITY"), ("held", "HELD"),
    ("cost", "COST"),
    ("waiting", "WAITING"), ("failures", "FAILURES"),
)  # fmt: skip
