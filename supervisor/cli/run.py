"""`greenroom run`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import anyio
import click

from statemachine.actor import OnDrain
from supervisor.host.composition import open_host_ports
from supervisor.host.surroundings import find_runsc, raise_file_limit, read_small
from supervisor.logs import LogFormat, configure_logs
from supervisor.running import run_worker
from supervisor.settings import Backend, Settings


def _from_file(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """The file's values become defaults: a flag wins over GREENROOM_…, that over the file, that over the default."""
    if path is None:
        return None
    try:
        values = tomllib.loads(read_small(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be used: {error}") from error
    known = {param.name for param in ctx.command.params}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known or name == "config":
            raise click.BadParameter(f"{path} has an unknown setting: {key}")
        defaults[name] = value
    ctx.default_map = defaults
    return path


@click.command(context_settings={"auto_envvar_prefix": "GREENROOM"})
@click.option("--state-dir", type=click.Path(path_type=Path), default="/var/lib/greenroom", show_default=True)
@click.option("--run-dir", type=click.Path(path_type=Path), default="/run/greenroom", show_default=True)
@click.option("--assignments", type=click.Path(path_type=Path), help="Directory of assignments to follow.")
@click.option("--runsc", type=click.Path(path_type=Path), help="runsc  [default: beside the interpreter, then PATH]")
@click.option("--platform", type=click.Choice(["systrap", "ptrace", "kvm"]), default="systrap", show_default=True)
@click.option("--network", type=click.Choice(["none", "host"]), default="none", show_default=True)
@click.option("--max-actors", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--on-drain", type=click.Choice(["suspend", "stop"]), default="stop", show_default=True)
@click.option("--drain-timeout", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds.")
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
    async with open_host_ports(roots=(settings.state_dir, settings.run_dir)) as ports:
        await run_worker(ports, settings)
