"""`greenroom run`."""

from __future__ import annotations

from typing import Any

import anyio
import click

from statemachine.actor import OnDrain
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.asking import Seconds
from supervisor.cli.places import PLACE
from supervisor.cli.worker_options import (
    CONTEXT,
    StoreAt,
    config_option,
    gpu_options,
    gpu_settings,
    network_option,
    platform_option,
    run_dir_option,
    runsc_option,
    state_dir_option,
)
from supervisor.host.composition import open_host_ports
from supervisor.host.surroundings import effective_uid, find_runsc, raise_file_limit
from supervisor.logs import LogFormat, configure_logs
from supervisor.running import SIGNALS, run_worker
from supervisor.settings import Backend, Settings


@click.command(context_settings=CONTEXT)
@state_dir_option
@run_dir_option
@click.option("--assignments", type=PLACE, help="Directory of assignments to follow.")
@runsc_option
@platform_option
@network_option
@gpu_options
@click.option(
    "--snapshot-store",
    type=StoreAt(),
    metavar="URI",
    help="Store for the snapshots of actors whose documents name none: s3:, gs:, az: or file:  [default: none]",
)
@click.option("--max-actors", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--on-drain", type=click.Choice(["suspend", "stop"]), default="stop", show_default=True)
@click.option("--drain-timeout", type=Seconds(), default=120.0, show_default=True, help="Seconds.")
@click.option("--backend", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
@click.option("--log-format", type=click.Choice(["auto", "json", "console"]), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
@config_option
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
        snapshot_store=values["snapshot_store"],
        max_actors=values["max_actors"],
        on_drain=OnDrain.SUSPEND if values["on_drain"] == "suspend" else OnDrain.STOP,
        drain_timeout_s=values["drain_timeout"],
        **gpu_settings(values),
    )
    anyio.run(_run, settings, backend=str(Backend(values["backend"])))


async def _run(settings: Settings) -> None:
    roots = (settings.state_dir, settings.run_dir)
    # A second SIGTERM that comes when all is done must not turn a clean end into a death by signal.
    async with open_host_ports(roots=roots, gpu_monitor=settings.gpu_monitor, ignored_afterwards=SIGNALS) as ports:
        await run_worker(ports, settings)


def _not_root() -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.RUNTIME_UNAVAILABLE,
        subject="worker",
        message=f"gVisor needs root to make its namespaces, and this is uid {effective_uid()}",
        hint="Run the worker as root.",
    )
