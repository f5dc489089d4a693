"""`greenroom run`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import anyio
import click

from statemachine.actor import OnDrain
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.asking import Seconds
from supervisor.host.composition import open_host_ports
from supervisor.host.surroundings import effective_uid, find_runsc, is_regular, raise_file_limit, read_small
from supervisor.logs import LogFormat, configure_logs
from supervisor.running import SIGNALS, run_worker
from supervisor.settings import Backend, Settings


class _Place(click.Path):
    """A path that says where: an empty one would be the working directory.

    It is UTF-8, since status, journal and refusals name it, and JSON holds nothing else.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it, or say what is wrong."""
        if not str(value) or "\0" in str(value):
            self.fail("a path must not be empty or hold a NUL", param, ctx)
        try:
            str(Path(value).absolute()).encode()
        except UnicodeEncodeError:
            self.fail(f"the path {click.format_filename(value)} is not UTF-8", param, ctx)
        return super().convert(value, param, ctx)


PLACE = _Place(path_type=Path)


def _from_file(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """The file's values become defaults: a flag wins over GREENROOM_…, that over the file, that over the default."""
    if path is None:
        return None
    if not is_regular(path):
        raise click.BadParameter(f"{path} is not a file")
    try:
        values = tomllib.loads(read_small(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be used: {error}") from error
    known = {param.name for param in ctx.command.params} - {"config"}
    defaults: dict[str, str] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise click.BadParameter(f"{path} has an unknown setting: {key}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise click.BadParameter(f"{path}: {key} must be a text or a number")
        # As text, so that it is read by the same rule as a flag.
        defaults[name] = str(value)
    ctx.default_map = defaults
    return path


@click.command(context_settings={"auto_envvar_prefix": "GREENROOM"})
@click.option("--state-dir", type=PLACE, default="/var/lib/greenroom", show_default=True)
@click.option("--run-dir", type=PLACE, default="/run/greenroom", show_default=True)
@click.option("--assignments", type=PLACE, help="Directory of assignments to follow.")
@click.option("--runsc", type=PLACE, help="runsc  [default: beside the interpreter, then PATH]")
@click.option("--platform", type=click.Choice(["systrap", "ptrace", "kvm"]), default="systrap", show_default=True)
@click.option("--network", type=click.Choice(["none", "host"]), default="none", show_default=True)
@click.option("--max-actors", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--on-drain", type=click.Choice(["suspend", "stop"]), default="stop", show_default=True)
@click.option("--drain-timeout", type=Seconds(), default=120.0, show_default=True, help="Seconds.")
@click.option("--backend", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
@click.option("--log-format", type=click.Choice(["auto", "json", "console"]), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=_from_file,
    is_eager=True,
    expose_value=False,
    help="TOML file with any of these settings.",
)
def run(**values: Any) -> None:
    """Run the worker: take assignments, drive actors, leave cleanly on SIGTERM."""
    if effective_uid() != 0:
        raise ProblemError(_not_root())
    configure_logs(LogFormat(values["log_format"]), level=values["log_level"])
    raise_file_limit()
    settings = Settings(
        state_dir=values["state_dir"].absolute(),
        run_dir=values["run_dir"].absolute(),
        assignments=values["assignments"].absolute() if values["assignments"] else None,
        runsc=find_runsc(values["runsc"]),
        platform=values["platform"],
        network=values["network"],
        max_actors=values["max_actors"],
        on_drain=OnDrain.SUSPEND if values["on_drain"] == "suspend" else OnDrain.STOP,
        drain_timeout_s=values["drain_timeout"],
    )
    anyio.run(_run, settings, backend=str(Backend(values["backend"])))


async def _run(settings: Settings) -> None:
    roots = (settings.state_dir, settings.run_dir)
    # A second SIGTERM that comes when all is done must not turn a clean end into a death by signal.
    async with open_host_ports(roots=roots, ignored_afterwards=SIGNALS) as ports:
        await run_worker(ports, settings)


def _not_root() -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.RUNTIME_UNAVAILABLE,
        subject="worker",
        message=f"gVisor needs root to make its namespaces, and this is uid {effective_uid()}",
        hint="Run the worker as root.",
    )
