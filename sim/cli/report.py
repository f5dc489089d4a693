"""`greenroom sim report`: the page of one replay, or the comparison of two, from what they have told."""

from __future__ import annotations

from pathlib import Path

import click

from sim.reports.page import page
from sim.reports.reading import read_result
from sim.reports.run import Run
from sim.reports.writing import write_page
from statemachine.wording import file_label
from supervisor.cli.places import PLACE


@click.command()
@click.argument("first", type=PLACE, metavar="A.json")
@click.argument("second", type=PLACE, metavar="[B.json]", required=False)
@click.option("-o", "--output", type=PLACE, required=True, metavar="PAGE", help="Where it goes; - is stdout.")
def report(*, first: Path, second: Path | None, output: Path) -> None:
    """Make the page of a replay from what `greenroom sim replay --json` has told; of two replays, a comparison."""
    paths = [first] if second is None else [first, second]
    results = [read_result(path) for path in paths]
    labels = _labels(paths) if second is not None else [results[0].source]
    write_page(page([Run(label, result) for label, result in zip(labels, results, strict=True)]), output)


def _labels(paths: list[Path]) -> list[str]:
    """The names of the files; where these are the same, all of their paths."""
    names = [path.stem for path in paths]
    return [file_label(name) for name in (names if len(set(names)) == len(names) else map(str, paths))]
