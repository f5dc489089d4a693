"""A sweep from outside: a grid in, its sums out. What a folder has already is not run again.

sums = sweep(points, range(100), runner=LocalProcesses(2), processes=2, folder=opened(Path("out")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .planning import chunks_of, runs_of
from .sums import Sums
from .work import code_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answers import Runner
    from .keeping import Folder
    from .rows import Row
    from .work import Point, Run

RUNS_MAX: Final = 200_000


class Told(Protocol):
    """Who hears how far a sweep is."""

    def __call__(self, done: int, total: int, /) -> None:
        """So many rows of those that were not there before are done."""
        ...


def sweep(
    points: Sequence[Point],
    seeds: range,
    *,
    runner: Runner,
    processes: int,
    folder: Folder | None = None,
    tell: Told = lambda _done, _total: None,
) -> Sums:
    """Make every row of a grid that is not there.

    Args:
        points: one or more, of one kind.
        seeds: of each point.
        runner: where they are made.
        processes: how many it has beside each other, by which they are cut.
        folder: where rows are kept; None keeps none.
        tell: hears how far it is.

    Raises:
        ProblemError: SweepIncomplete, SweepUnavailable, OutputUnwritable; what a run refuses. What was made is kept.
    """
    if len(points) * len(seeds) > RUNS_MAX:
        message = f"{len(points)} settings with {len(seeds)} seeds each are more than {RUNS_MAX} runs"
        raise ProblemError(
            Problem(step=Step.ADMISSION, reason=Reason.CONFIG_REFUSED, subject="the grid", message=message)
        )
    code = code_digest()
    runs = runs_of(points, seeds, code)
    sums, numbers = Sums.of(points), _numbers(runs)
    done = _from_before(folder, numbers, sums) if folder is not None else frozenset()
    count, total = 0, len(numbers) - len(done)
    tell(count, total)

    def take(rows: tuple[Row, ...]) -> None:
        nonlocal count
        if folder is not None:
            folder.keep(rows)
        sums.take(rows, numbers)
        count += len(rows)
        tell(count, total)

    chunks = list(chunks_of(points, runs, done, code, processes=processes))
    if chunks:
        runner(chunks, take)
    if folder is not None:
        folder.finish({run.key: points[run.point] for run in runs})
    return sums


def _numbers(runs: Sequence[Run]) -> dict[str, list[int]]:
    """The points of each key: two settings may come to the same."""
    found: dict[str, list[int]] = {}
    for run in runs:
        found.setdefault(run.key, []).append(run.point)
    return found


def _from_before(folder: Folder, numbers: dict[str, list[int]], sums: Sums) -> frozenset[str]:
    """Take the rows that are there."""
    done = {key: path for key, path in folder.done().items() if key in numbers}
    for path in dict.fromkeys(done.values()):
        rows = [row for row in folder.rows(path) if done.get(row.key) == path]
        sums.take(rows, numbers)
        sums.kept += len(rows)
    return frozenset(done)
