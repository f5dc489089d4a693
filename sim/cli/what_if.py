"""`greenroom sim what-if`: one trace, with more and fewer workers and idle timeouts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sim.cli.progress import progress
from sim.fleet.config import SHIPPED, read_config
from sim.reports.what_if import GPUS
from sim.reports.what_if import what_if as table_of
from sim.reports.what_if_page import COLUMNS, answer, rows, what_if_page
from sim.reports.what_if_plot import picture
from sim.reports.writing import write_page
from sim.traces.reading import read_trace
from sim.traces.records import GPUS_MAX, WorkerAdd
from sim.traces.shipped import shipped
from supervisor.cli.asking import json_option
from supervisor.cli.columns import aligned
from supervisor.cli.places import PLACE

if TYPE_CHECKING:
    from sim.fleet.config import FleetConfig

WORKERS_MAX: Final = 100_000
CELLS_MAX: Final = 1000


class _Several(click.ParamType[tuple[float, ...]]):
    """Numbers with commas between them, each once."""

    name = "numbers"

    def __init__(self, least: float, most: float, *, whole: bool) -> None:
        self.least, self.most, self.whole = least, most, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Read them, or say what is wrong."""
        if isinstance(value, tuple):
            return value
        found = dict.fromkeys(self._one(word.strip(), param, ctx) for word in value.split(","))
        return tuple(found)

    def _one(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = int(word) if self.whole else math.inf if word == "never" else float(word)
        except ValueError:
            self.fail(f"{word!r:.80} is no number", param, ctx)
        if not self.least <= number <= self.most:
            self.fail(f"{word!r:.80} is not from {self.least:g} to {self.most:g}", param, ctx)
        return number


@click.command("what-if")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--workers", type=_Several(1, WORKERS_MAX, whole=True), required=True, metavar="N,N…", help="How many there are."
)
@click.option(
    "--idle-timeout",
    "idle_timeouts_s",
    type=_Several(0, math.inf, whole=False),
    required=True,
    metavar="S,S…",
    help="After so many seconds without being asked for anything an actor is suspended; or `never`.",
)
@click.option(
    "--gpus-per-worker", type=click.IntRange(1, GPUS_MAX), metavar="N",
    help=f"Of each; else as the trace's own workers, in turn, or {GPUS} where it has none.",
)  # fmt: skip
@click.option("--model", metavar="NAME", help="Of their GPUs, with --gpus-per-worker.")
@click.option("--p95-under", "p95_s", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="Name the cheapest whose p95 of activations is at most so long.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything that is left to chance.")
@click.option("--config", metavar="FILE", help=f"As of `sim replay`; shipped ones: {', '.join(SHIPPED)}.")
@click.option(
    "-o",
    "--output",
    type=PLACE,
    metavar="PAGE",
    help="Write a page as well; or the plot alone, to a name with .svg at its end.",
)
@json_option
def what_if(
    *,
    trace: Path,
    workers: tuple[int, ...],
    idle_timeouts_s: tuple[float, ...],
    gpus_per_worker: int | None,
    model: str | None,
    p95_s: float | None,
    seed: int,
    config: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Replay TRACE for each number of workers and each idle timeout: p95 of activations, density, cost.

    Its own workers and suspends are left out: workers are there from the beginning to the end, and who is idle is
    suspended by the timeout alone.
    """
    if model is not None and gpus_per_worker is None:
        raise click.UsageError("--model needs --gpus-per-worker")
    if len(workers) * len(idle_timeouts_s) > CELLS_MAX:
        raise click.UsageError(f"that makes over {CELLS_MAX} replays")
    shape = (
        None if gpus_per_worker is None else WorkerAdd(at_s=0.0, worker="worker-1", gpus=gpus_per_worker, model=model)
    )
    place = shipped(str(trace)) or trace
    read_config(config)

    def configured(idle_timeout_s: float) -> FleetConfig:
        return read_config(config, {"suspension.idle_timeout_s": idle_timeout_s})

    with progress(place, "what if", times=(shape is None) + len(workers) * len(idle_timeouts_s)) as counted:

        def opened() -> Any:
            header, records = read_trace(place)
            return header, iter(counted(records))

        table = table_of(
            opened,
            workers=workers,
            idle_timeouts_s=idle_timeouts_s,
            configured=configured,
            shape=shape,
            seed=seed,
            p95_s=p95_s,
        )
    if output is not None:
        write_page(picture(table) if output.suffix == ".svg" else what_if_page(table), output)
    if as_json:
        click.echo(table.as_json(), nl=False)
        return
    for line in aligned([tuple(column.upper() for column in COLUMNS), *rows(table)]):
        click.echo(line)
    if p95_s is not None:
        click.echo(answer(table))
