"""What the commands that make traces share: where a trace goes, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statemachine.wording import file_label
from supervisor.cli.places import PLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sim.traces.records import Scalar

output_option: Callable[[Any], Any] = click.option(
    "-o",
    "--output",
    type=PLACE,
    required=True,
    metavar="TRACE",
    help="Where it goes; a name with .gz or .zst at its end is compressed, - is stdout.",
)


def tell_written(output: Path, count: int, notes: Mapping[str, Scalar]) -> None:
    """On stdout, unless that is where the trace went."""
    told = ", ".join(f"{name}: {value}" for name, value in notes.items() if value is not None)
    line = f"{file_label(str(output))}: {count} records{f' ({told})' if told else ''}"
    click.echo(line, err=output == Path("-"))
