"""A page as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.reports.page import page
from sim.reports.run import Run
from sim.traces.streams import made

if TYPE_CHECKING:
    from pathlib import Path

    from sim.replay.results import ReplayResult


def write_report(result: ReplayResult, path: Path) -> None:
    """Write what a replay told as a page; `-` is stdout.

    Raises:
        ProblemError: OutputUnwritable.
    """
    write_page(page([Run(result.source, result)]), path)


def write_page(content: bytes, path: Path) -> None:
    """Write a page; it is there when it is whole.

    Raises:
        ProblemError: OutputUnwritable.
    """
    with made(path) as write:
        write(content)
