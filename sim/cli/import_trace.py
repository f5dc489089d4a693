"""`greenroom sim import`: a trace of ours from somebody else's, or from Greenroom's own journals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sim.cli.traces import output_option, tell_written
from sim.traces.importing.azure_llm import GENERATED_TOKENS_PER_S, PROMPT_TOKENS_PER_S, AzureLlm, import_azure_llm
from sim.traces.importing.journals import Journals, import_journals, journals_below
from sim.traces.importing.openb import Fractions, OpenB, import_openb
from sim.traces.importing.rows import BadRows
from sim.traces.records import GPUS_MAX, LABEL_PATTERN
from sim.traces.writing import write_trace
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label
from supervisor.cli.places import PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sim.traces.records import Header, Record

FORMS: Final = ("openb", "azure-llm", "journal")
ACTORS_MAX: Final = 1_000_000
RATE_MIN: Final = 0.001
RATE_MAX: Final = 1e9
"""Tokens a second."""
_OF: Final = {
    "nodes": "openb",
    "fractions": "openb",
    "actors": "azure-llm",
    "seed": "azure-llm",
    "skew": "azure-llm",
    "idle_timeout_s": "azure-llm",
    "gpus": "azure-llm",
    "prompt_rate": "azure-llm",
    "generation_rate": "azure-llm",
    "worker_gpus": "journal",
    "unpinned": "journal",
}
"""Option -> the only form that it is for."""


class IdleTimeout(click.ParamType[float]):
    """A number of seconds, or none."""

    name = "seconds or none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or say what is wrong; 0 is none."""
        if str(value) == "none":
            return 0.0
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= 1e9:  # noqa: PLR2004 - thirty years
            self.fail(f"{value!r} is neither a number of seconds nor `none`", param, ctx)
        return seconds


def _model(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.match(LABEL_PATTERN, value):
        raise click.BadParameter("1 to 128 printable ASCII characters are a model")
    return value


@click.command("import")
@click.option("--from", "form", type=click.Choice(FORMS), required=True, help="What the files are.")
@click.argument("files", nargs=-1, required=True, type=PLACE, metavar="FILE…")
@output_option
@click.option("--skip-bad", is_flag=True, help="Leave bad rows out, and tell them; else nothing is made of any row.")
@click.option("--nodes", type=PLACE, metavar="FILE", help="openb: the nodes, which become workers.")
@click.option(
    "--fractions",
    type=click.Choice([str(each) for each in Fractions]),
    default=str(Fractions.ROUND_UP),
    show_default=True,
    help="openb: what becomes of pods that share a GPU.",
)
@click.option(
    "--actors", type=click.IntRange(1, ACTORS_MAX), default=100, show_default=True, help="azure-llm: who serves."
)
@click.option("--seed", type=int, default=0, show_default=True, help="azure-llm: of who serves which request.")
@click.option(
    "--skew",
    type=click.FloatRange(0, 10),
    default=1.0,
    show_default=True,
    help="azure-llm: 0 asks all alike; Zipf's law.",
)
@click.option(
    "--idle-timeout",
    "idle_timeout_s",
    type=IdleTimeout(),
    default="60",
    show_default=True,
    metavar="S|none",
    help="azure-llm: who was idle for so long is suspended; none leaves that to the fleet.",
)
@click.option(
    "--gpus", type=click.IntRange(0, GPUS_MAX), default=1, show_default=True, help="azure-llm: of each actor."
)
@click.option(
    "--prompt-rate",
    type=click.FloatRange(RATE_MIN, RATE_MAX),
    default=PROMPT_TOKENS_PER_S,
    show_default=True,
    help="azure-llm: tokens of a prompt that are taken in, a second.",
)
@click.option(
    "--generation-rate",
    type=click.FloatRange(RATE_MIN, RATE_MAX),
    default=GENERATED_TOKENS_PER_S,
    show_default=True,
    help="azure-llm: tokens of an answer that are made, a second.",
)
@click.option("--model", callback=_model, help="azure-llm: of GPUs that actors must have; journal: that workers have.")
@click.option(
    "--worker-gpus",
    type=click.IntRange(0, GPUS_MAX),
    help="journal: of each worker.  [default: as many as were held at once]",
)
@click.option("--unpinned", is_flag=True, help="journal: let the fleet place the actors anew.")
@click.pass_context
def import_trace(
    ctx: click.Context, /, *, form: str, files: tuple[Path, ...], output: Path, skip_bad: bool, **options: Any
) -> None:
    """Make a trace. A bad row is told with its number, and refuses the import unless --skip-bad leaves it out."""
    _refuse_foreign(ctx, form)
    bad = BadRows(are_skipped=skip_bad)
    header, records = _imported(form, files, options, bad)
    count = write_trace(output, header, records)
    for problem in bad.told:
        click.echo(f"skipped: {problem.message}", err=True)
    if bad.count > len(bad.told):
        click.echo(f"skipped: {bad.count - len(bad.told)} rows more", err=True)
    tell_written(output, count, header.notes)


def _refuse_foreign(ctx: click.Context, form: str) -> None:
    for name, owner in _OF.items():
        given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and owner != form:
            (option,) = [each.opts[0] for each in ctx.command.params if each.name == name]
            raise click.UsageError(f"{option} is for --from {owner}")
    if form == "openb" and ctx.params["model"] is not None:
        raise click.UsageError("--model is for --from azure-llm and journal")


def _imported(
    form: str, files: Sequence[Path], options: Mapping[str, Any], bad: BadRows
) -> tuple[Header, Iterator[Record]]:
    if form == "openb":
        return import_openb(files, OpenB(nodes=options["nodes"], fractions=Fractions(options["fractions"])), bad)
    if form == "azure-llm":
        how = AzureLlm(
            actors=options["actors"],
            seed=options["seed"],
            skew=options["skew"],
            idle_timeout_s=options["idle_timeout_s"] or None,
            gpus=options["gpus"],
            model=options["model"],
            prompt_tokens_per_s=options["prompt_rate"],
            generated_tokens_per_s=options["generation_rate"],
        )
        return import_azure_llm(files, how, bad)
    journals = Journals(is_pinned=not options["unpinned"], gpus=options["worker_gpus"], model=options["model"])
    return import_journals(_journals(files), journals, bad)


def _journals(files: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in files:
        try:
            below = journals_below(path)
        except OSError as error:
            message = f"{file_label(str(path))} cannot be read: {error.strerror or error}"
            raise ProblemError(_problem(path, message)) from error
        if not below:
            raise ProblemError(_problem(path, f"there is no journal below {file_label(str(path))}"))
        found += below
    return found


def _problem(path: Path, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message)
