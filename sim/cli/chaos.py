"""`greenroom sim chaos`: break everything around the real worker, seed by seed, and say what it did not stand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
import orjson

from sim.chaos.campaign import run_campaign
from sim.chaos.config import LIMIT_BYTES, CampaignConfig, read_config
from sim.chaos.defects import DEFECTS, planted
from sim.chaos.drawing import plan_of
from sim.chaos.running import run_plan
from sim.chaos.summary import EXIT_CODES, as_json, coverage_of
from sim.cli.seeds import Seeds
from sim.shrinking.reducing import RUNS_MAX, reduce_plan
from sim.shrinking.repro import repro_as_lines, repro_of
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.places import PLACE
from supervisor.host.surroundings import cpu_s_of_children, read_small, usable_cpus, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sim.chaos.outcome import Outcome, Phase
    from sim.chaos.summary import Summary

SHRUNK_MAX: Final = 3
"""So many different things that were found are made small."""
_MINUTE_S: Final = 60


@click.command()
@click.option("--seeds", type=Seeds(), default=range(200), metavar="A:B", help="From A to before B.  [default: 0:200]")
@click.option(
    "--config", "config_file", type=PLACE, metavar="FILE", help="TOML: how runs are drawn, docs/simulator.md."
)
@click.option("--json", "as_document", is_flag=True, help="One document on stdout.")
@click.option("--processes", type=click.IntRange(min=1), help="Beside each other.  [default: as there are processors]")
@click.option(
    "--plant", "defect", type=click.Choice(list(DEFECTS)), metavar="DEFECT", help="Take one guard away first."
)
@click.option(
    "--repros", type=PLACE, metavar="DIR", default=".", show_default=True, help="Where repro files are written."
)
@click.option(
    "--shrink-runs", type=click.IntRange(min=0), default=RUNS_MAX, show_default=True,
    help="How often a failing plan may be run to make it small; 0 writes no repro.",
)  # fmt: skip
@click.pass_context
def chaos(
    ctx: click.Context,
    *,
    seeds: range,
    config_file: Path | None,
    as_document: bool,
    processes: int | None,
    defect: str | None,
    repros: Path,
    shrink_runs: int,
) -> int:
    """Run the real worker in the simulated world, with faults of everything that can fail, one run for each seed.

    First nothing may be violated whatever fails (3: safety); then nothing fails any more, and everything must come
    (4: liveness). 5 is a crash. What was found is made small, and written as a repro that `sim replay` runs.
    """
    if as_document and isinstance(ctx.obj, dict):
        ctx.obj["as_json"] = True
    config = CampaignConfig() if config_file is None else read_config(_read(config_file), path=config_file)
    summary = run_campaign(
        seeds, config, defect=defect, processes=processes or usable_cpus(), tell=_progress(len(seeds))
    )
    written = _shrink(summary, config, defect, repros, shrink_runs) if shrink_runs else {}
    if as_document:
        document = as_json(summary) | {
            "seed": seeds.start,
            "seeds": f"{seeds.start}:{seeds.stop}",
            "planted": defect,
            "cpu_s": round(cpu_s_of_children(), 1),
            "repros": [str(path) for path in written],
        }
        click.echo(orjson.dumps(document).decode())
    else:
        for line in _shown(summary, seeds):
            click.echo(line)
        for path, data in written.items():
            click.echo(f"\nrepro: greenroom sim replay {path}")
            click.echo(data.decode().rstrip())
    return EXIT_CODES[summary.phase] if summary.phase is not None else 0


def _read(path: Path) -> bytes:
    try:
        return read_small(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        problem = Problem(step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message)
        raise ProblemError(problem) from error


# ---- while it goes on


def _progress(count: int) -> Callable[[Summary, float], None]:
    """Says how far it is, to a person who looks on."""

    def tell(summary: Summary, elapsed_s: float) -> None:
        if sys.stderr.isatty():
            pace = summary.runs / elapsed_s if elapsed_s else 0.0
            left_s = int((count - summary.runs) / pace) if pace else 0
            eta = f"{left_s // _MINUTE_S}:{left_s % _MINUTE_S:02d}"
            text = f"{summary.runs}/{count} seeds, {pace:.1f}/s, {summary.failed} failed, {eta} left"
            click.echo(f"\r\033[K{text}", err=True, nl=summary.runs >= count)

    return tell


# ---- what was found


def _shrink(
    summary: Summary, config: CampaignConfig, defect: str | None, repros: Path, runs_max: int
) -> dict[Path, bytes]:
    """Make the first run of each different thing small; returns the files that were written, with their content."""
    chosen: dict[tuple[Phase, str], Outcome] = {}
    for outcome in summary.failing:
        if outcome.digest:
            chosen.setdefault(outcome.found[0].what, outcome)
    written: dict[Path, bytes] = {}
    for (_, name), outcome in list(chosen.items())[:SHRUNK_MAX]:
        with planted(defect):
            reduced = reduce_plan(plan_of(outcome.seed, config), outcome, run_plan, runs_max=runs_max)
        path = repros / f"{outcome.seed}-{name}.jsonl"
        data = repro_as_lines(repro_of(reduced.plan, reduced.outcome, defect=defect))
        try:
            write_whole(path, data)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror or error}"
            problem = Problem(step=Step.SUPERVISE, reason=Reason.OUTPUT_UNWRITABLE, subject=str(path), message=message)
            raise ProblemError(problem) from error
        written[path] = data
    return written


def _shown(summary: Summary, seeds: range) -> list[str]:
    """For a person."""
    coverage = coverage_of(summary)
    head = f"seeds {seeds.start}:{seeds.stop}: {summary.runs} runs, {summary.calls} port calls, "
    head += f"{summary.transitions} transitions, {summary.virtual_s:.0f} virtual seconds"
    lines = [head, "", f"{'FAULT':<18}{'PLANNED':>8}{'FIRED':>7}{'CELLS':>7}"]
    for kind, planned in summary.planned.items():
        lines.append(f"{kind:<18}{planned:>8}{summary.fired.get(kind, 0):>7}{coverage['byKind'].get(kind, 0):>7}")
    met = f"{coverage['cells']} cells of state, event and fault; {coverage['pairs']} pairs of state and event"
    lines += ["", met]
    if summary.unfired:
        lines.append(f"never fired: {', '.join(summary.unfired)}")
    for outcome in summary.failing:
        lines += [f"seed {outcome.seed}: {found}" for found in outcome.found]
    lines.append(f"{summary.failed} of {summary.runs} runs failed, verdict: {summary.phase or 'ok'}")
    return lines
