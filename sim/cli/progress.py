"""How far a long command is, and when it will be done: on stderr, where that is a terminal and nowhere else."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from sim.traces.streams import blocks, opened
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.host.surroundings import is_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

REFRESH_S: Final = 0.2
SPEED_S: Final = 600.0
LOOK_EVERY: Final = 64
"""Records between two looks at the clock."""
Item = TypeVar("Item")


@contextmanager
def progress(trace: Path, words: str, *, times: int = 1) -> Iterator[Callable[[Iterable[Item]], Iterable[Item]]]:
    """What lets records through, and counts them.

    Args:
        trace: the file that they come from; it is read once more, to know how many there are.
        words: what is being done.
        times: how often the whole of it is read.
    """
    total = _records(trace) * times if sys.stderr.isatty() and is_regular(trace) else 0
    if not total:
        yield lambda records: records
        return
    # Not before: nothing else here needs it, and it takes a tenth of a second.
    from rich import progress as bars  # noqa: PLC0415 - see above
    from rich.console import Console  # noqa: PLC0415 - as above

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    # It has no thread: inside a simulated world there are none.
    with bars.Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task(words, total=total)
        shown_s = bar.get_time()

        def counted(records: Iterable[Item]) -> Iterator[Item]:
            nonlocal shown_s
            done = 0
            for record in records:
                yield record
                done += 1
                if done == LOOK_EVERY:
                    bar.advance(task, done)
                    done = 0
                    if (now_s := bar.get_time()) - shown_s >= REFRESH_S:
                        shown_s = now_s
                        bar.refresh()
            bar.advance(task, done)
            bar.refresh()

        yield counted


@contextmanager
def advancing(words: str, count: str) -> Iterator[Callable[[int, int], None]]:
    """What is told how much of how much is done, as often as one likes.

    Args:
        words: what is being done.
        count: of what it is counted.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich import progress as bars  # noqa: PLC0415 - as above
    from rich.console import Console  # noqa: PLC0415 - as above

    columns = (
        bars.TextColumn(words),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn(count),
        bars.TimeRemainingColumn(),
    )
    # It comes in jumps, and what comes next is guessed from long ago.
    with bars.Progress(
        *columns, console=Console(stderr=True), auto_refresh=False, transient=True, speed_estimate_period=SPEED_S
    ) as bar:
        task = bar.add_task(words, total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        yield tell


def _records(trace: Path) -> int:
    """How many lines come after the first; none for a file that cannot be read, which who reads it will say."""
    try:
        with opened(trace) as file:
            lines = sum(
                block.count(b"\n") + (not block.endswith(b"\n"))
                for block in blocks(file, trace, reason=Reason.INVALID_TRACE)
            )
    except ProblemError:
        return 0
    return max(lines - 1, 0)
