"""`greenroom sim generate`: a trace of a workload that is made up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.cli.traces import output_option, tell_written
from sim.traces.generating.registry import WORKLOADS, ParameterError
from sim.traces.generating.registry import generate as generated
from sim.traces.writing import write_trace

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("workload", type=click.Choice(list(WORKLOADS)))
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed makes the same trace.")
@output_option
@click.option("--actors", type=int, help="How many; as --set actors=N.")
@click.option("--workers", type=int, help="How many; as --set workers=N.")
@click.option("--duration", "duration_s", type=float, metavar="S", help="Seconds; as --set duration_s=S.")
@click.option(
    "--set",
    "words",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the workload, which docs/traces.md lists; may be repeated.",
)
def generate(
    *,
    workload: str,
    seed: int,
    output: Path,
    actors: int | None,
    workers: int | None,
    duration_s: float | None,
    words: tuple[str, ...],
) -> None:
    """Make up a trace: who asks when for how much, and which workers there are."""
    given: dict[str, Any] = {"actors": actors, "workers": workers, "duration_s": duration_s}
    parameters = {name: value for name, value in given.items() if value is not None} | _parameters(words)
    try:
        header, records = generated(workload, parameters, seed)
    except ParameterError as error:
        raise click.UsageError(str(error)) from None
    tell_written(output, write_trace(output, header, records), {})


def _parameters(words: Sequence[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r:.80} is not NAME=VALUE", param_hint="--set")
        parameters[name] = value
    return parameters
