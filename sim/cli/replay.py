"""`greenroom sim replay`: a trace against a fleet, in virtual time."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sim.cli.progress import progress
from sim.cli.repro import replayed_repro
from sim.cli.walk import EXIT_VIOLATED
from sim.fleet.config import SHIPPED, read_config
from sim.replay import outlets
from sim.replay.results import Verdict
from sim.reports.wording import setting
from sim.traces.reading import read_trace
from sim.traces.shipped import shipped
from statemachine.wording import one_line
from supervisor.cli.asking import json_option
from supervisor.cli.columns import aligned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sim.replay.outlets import Engine
    from sim.replay.results import ReplayResult


SOURCE_MAX: Final = 200
"""Characters of what a trace says of itself."""


def _when(place: str | None, *names: str, help_: str) -> Callable[[Any], Any]:
    """An option for a file that is written, where there is a writer."""
    if place is None:
        return lambda command: command
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=help_)


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--engine",
    type=click.Choice(list(outlets.ENGINES)),
    default="fast",
    show_default=True,
    help="fast: the state machine alone; faithful: the real supervisor on simulated machines.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything that is left to chance.")
@click.option(
    "--config",
    metavar="FILE",
    help=f"TOML file with what differs from the default fleet, or one that is shipped: {', '.join(SHIPPED)}.",
)
@_when(outlets.REPORT, "--report", help_="Write a page with what came of it.")
@_when(outlets.PERFETTO, "--perfetto", help_="Write every transition for Perfetto.")
@json_option
def replay(
    *,
    trace: Path,
    engine: str,
    seed: int,
    config: str | None,
    as_json: bool,
    report: Path | None = None,
    perfetto: Path | None = None,
) -> int:
    """Replay TRACE: who runs where and when, how long they wait, what it costs, and whether every promise is kept.

    TRACE is a file of `greenroom sim generate` or `greenroom sim import`, any that docs/traces.md describes, or the
    name of a workload, of which a small trace is shipped. 3 when an invariant is violated. A repro of `greenroom sim
    chaos` is run as it is, and ends as that does.
    """
    if (code := replayed_repro(trace, as_json=as_json)) is not None:
        return code
    fleet = read_config(config)
    place = shipped(str(trace)) or trace
    header, records = read_trace(place)
    run: Engine = outlets.loaded(outlets.ENGINES[engine])
    opened = nullcontext() if perfetto is None else outlets.loaded(str(outlets.PERFETTO))(perfetto)
    with opened as sink, progress(place, "replaying") as counted:
        result = run(header, iter(counted(records)), config=fleet, seed=seed, sink=sink)
    if report is not None:
        outlets.loaded(str(outlets.REPORT))(result, report)
    if as_json:
        click.echo(result.as_json(), nl=False)
    else:
        for line in shown(result):
            click.echo(line)
    return 0 if result.verdict is Verdict.HELD else EXIT_VIOLATED


def shown(result: ReplayResult) -> Iterator[str]:
    """The result for a person."""
    speed = result.transitions / result.cpu_s if result.cpu_s else 0.0
    yield f"{one_line(result.source, SOURCE_MAX)}: {result.rows} records, {result.skipped} of them passed over"
    yield (
        f"{result.workers} workers with {result.gpus} GPUs, {result.virtual_s:.0f} s in {result.cpu_s:.1f} s "
        f"({result.engine} engine, seed {result.seed}): {result.transitions} transitions, {speed:.0f} a second"
    )
    if result.config:
        yield f"config: {', '.join(f'{name} = {setting(value)}' for name, value in result.config.items())}"
    yield from _durations(result)
    begun = ", ".join(f"{count} {way}" for way, count in result.ways.items())
    yield f"activations: {result.lifecycles} came to Running; they began {begun or 'never'}"
    yield f"at the end: {', '.join(f'{count} {state}' for state, count in result.states.items())}"
    held, free = result.gpu_seconds["held"], result.gpu_seconds["free"]
    share = held / (held + free) if held + free else 0.0
    yield f"GPUs: {share:.1%} held, {result.density:.2f} actors a GPU, cost {result.cost:.2f}"
    for reason, count in result.failures.items():
        yield f"failed: {count} {reason}"
    for name, fault in result.faults.items():
        yield f"fault: {name}, {fault.planned} planned, {fault.fired} fired"
    for note in result.notes:
        yield f"note: {note}"
    for violation in result.violations:
        yield f"violated: {violation}"
    checked = sum(each.checked for each in result.invariants.values())
    yield f"{result.verdict}: {len(result.invariants)} invariants, looked at {checked} times"


_COLUMNS: Final = ("p50", "p95", "p99", "max")


def _durations(result: ReplayResult) -> Iterator[str]:
    """A table of what took how long."""
    rows: list[tuple[str, ...]] = [("SECONDS", "COUNT", *(name.upper() for name in _COLUMNS))]
    named: Mapping[str, Mapping[str, float]] = {
        "activation": result.activation_s,
        "suspend, whole": result.suspend_s,
        **{f"  {name}": each for name, each in result.steps.items()},
    }
    for name, each in named.items():
        if each["count"]:
            rows.append((name, str(each["count"]), *(f"{each[column]:.3f}" for column in _COLUMNS)))
    yield from aligned(rows)
