"""`greenroom sim sweep`: many replays, or much chaos, over seeds and settings."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from sim.chaos.config import LIMIT_BYTES, CampaignConfig
from sim.chaos.config import read_config as read_campaign
from sim.cli.progress import advancing
from sim.cli.seeds import Seeds
from sim.fleet.config import SHIPPED
from sim.grids import keeping
from sim.grids.axes import Axis, read_axis
from sim.grids.cluster import Cluster, threads_of
from sim.grids.local import LocalProcesses
from sim.grids.planning import DEFAULT, chaos_points, kept_traces, replay_points
from sim.grids.sweeping import sweep as swept
from sim.replay.outlets import ENGINES
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label
from supervisor.cli.asking import json_option
from supervisor.cli.columns import aligned
from supervisor.cli.places import PLACE
from supervisor.host.surroundings import read_small, usable_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.grids.sums import Sums
    from sim.grids.work import Point

SEEDS: Final = range(10)
FAST: Final = "fast"


class _Axes(click.ParamType[Axis]):
    """NAME=VALUE,VALUE."""

    name = "axis"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Axis:
        """Read it, or say what is wrong."""
        if isinstance(value, Axis):
            return value
        try:
            return read_axis(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("traces", type=PLACE, nargs=-1, metavar="[TRACE]...")
@click.option("--chaos", "is_chaos", is_flag=True, help="Runs of `sim chaos`, instead of replays of traces.")
@click.option("--seeds", type=Seeds(), default=SEEDS, metavar="A:B", help="From A to before B.  [default: 0:10]")
@click.option(
    "--engine", "engines", type=click.Choice(list(ENGINES)), multiple=True,
    help="Of replays; may be given for each.  [default: fast]",
)  # fmt: skip
@click.option(
    "--config", metavar="FILE",
    help=f"As of `sim replay` (shipped ones: {', '.join(SHIPPED)}); with --chaos as of `sim chaos`.",
)  # fmt: skip
@click.option(
    "--set", "axes", type=_Axes(), multiple=True, metavar="NAME=V,V…",
    help="An axis of the grid: a setting of the config by its name, or `workers`. All are combined.",
)  # fmt: skip
@click.option("-o", "--output", type=PLACE, metavar="DIR", help="Keep rows as Parquet, and make none that is there.")
@click.option("--processes", type=click.IntRange(min=1), help="Beside each other.  [default: as there are processors]")
@click.option("--scheduler", metavar="ADDRESS", help="Of a Dask cluster that is to do it, as tcp://10.0.0.1:8786.")
@json_option
def sweep(
    *,
    traces: tuple[Path, ...],
    is_chaos: bool,
    seeds: range,
    engines: tuple[str, ...],
    config: str | None,
    axes: tuple[Axis, ...],
    output: Path | None,
    processes: int | None,
    scheduler: str | None,
    as_json: bool,
) -> int:
    """Replay each TRACE with each engine, setting and seed, or run chaos with each, and tell of every setting.

    TRACE is as of `sim replay`. With --output every run is a row of Parquet files; the same command goes on where an
    earlier one has ended. 3 when an invariant is violated; with --chaos as of `sim chaos`.
    """
    if is_chaos == bool(traces):
        raise click.UsageError("give traces, or --chaos, and not both")
    if is_chaos and engines:
        raise click.UsageError("chaos has one engine: --chaos goes without --engine")
    if scheduler is not None and processes is not None:
        raise click.UsageError("a cluster has processes of its own: --scheduler goes without --processes")
    names = [axis.name for axis in axes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"{twice[0]} is set twice: give all of its values at once, with commas")
    points = (
        _chaos(config, axes) if is_chaos else replay_points(traces, dict.fromkeys(engines or (FAST,)), config, axes)
    )
    folder = None if output is None else keeping.opened(output)
    count = threads_of(scheduler) if scheduler is not None else processes or usable_cpus()
    runner = LocalProcesses(count) if scheduler is None else Cluster(scheduler, kept_traces(points))
    with advancing("sweep", "rows") as tell:
        sums = swept(points, seeds, runner=runner, processes=count, folder=folder, tell=tell)
    place = None if output is None else posixpath.join(str(output), keeping.WHOLE)
    if as_json:
        document = sums.document() | {"seeds": f"{seeds.start}:{seeds.stop}", "output": place}
        click.echo(orjson.dumps(document).decode())
    else:
        for line in _shown(sums, place):
            click.echo(line)
    return sums.exit_code


def _chaos(config: str | None, axes: tuple[Axis, ...]) -> list[Point]:
    if config is None:
        return chaos_points(CampaignConfig(), DEFAULT, axes)
    path = Path(config)
    try:
        data = read_small(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        problem = Problem(step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message)
        raise ProblemError(problem) from error
    return chaos_points(read_campaign(data, path=path), config, axes)


def _shown(sums: Sums, place: str | None) -> Iterator[str]:
    """For a person."""
    yield from aligned(list(sums.table()))
    yield ""
    if sums.campaign is not None:
        for outcome in sums.campaign.failing:
            yield from (f"seed {outcome.seed}: {found}" for found in outcome.found)
    rows = sum(each.runs for each in sums.points)
    before = f", {sums.kept} of them from before" if sums.kept else ""
    kept = "" if place is None else f": {file_label(place)}"
    yield f"{rows} rows{before}{kept}"
    yield f"verdict: {sums.verdict}"
