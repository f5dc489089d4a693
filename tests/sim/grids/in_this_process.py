"""Sweeps without other processes: the same chunks, run here, and stopped where a test wants it."""

from collections.abc import Iterable
from pathlib import Path

from sim.grids.answers import Take
from sim.grids.axes import read_axis
from sim.grids.planning import replay_points
from sim.grids.running import run_chunk
from sim.grids.work import Chunk, Point
from sim.traces.shipped import shipped

TRACE = Path("training-with-sidecars")
"""The smallest of those that are shipped."""


def trace_file() -> Path:
    """Where it is."""
    path = shipped(str(TRACE))
    assert path is not None
    return path


class StoppedError(Exception):
    """Whoever made the sweep has stopped it."""


class InThisProcess:
    """A Runner, which remembers what it was given, and stops before its `stop_at`th chunk."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.given: list[Chunk] = []
        self.stop_at = stop_at

    def __call__(self, chunks: Iterable[Chunk], take: Take) -> None:
        for chunk in chunks:
            if len(self.given) == self.stop_at:
                raise StoppedError
            self.given.append(chunk)
            take(run_chunk(chunk))

    @property
    def seeds(self) -> list[int]:
        return [run.seed for chunk in self.given for run in chunk.runs]


def points(*axes: str, traces: Iterable[Path] = (TRACE,), engine: str = "fast") -> list[Point]:
    return replay_points(list(traces), [engine], None, [read_axis(axis) for axis in axes])
