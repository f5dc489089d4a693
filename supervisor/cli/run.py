"""`greenroom run`."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import anyio
import click

from actors.ports import CGROUP_ROOT
from statemachine.actor import OnDrain
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.asking import Seconds
from supervisor.cli.last_words import last_words
from supervisor.cli.places import PLACE
from supervisor.cli.settings_again import source_of
from supervisor.cli.worker_options import (
    CONTEXT,
    UID_MAX,
    CollectorAt,
    ListenAt,
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
from supervisor.host.log_world import open_log_world
from supervisor.host.otlp import collector_of, open_span_export
from supervisor.host.self_look import look_at_ourselves
from supervisor.host.surroundings import effective_uid, find_runsc, in_pod, raise_file_limit, take_rights_away
from supervisor.logs import LogFormat, configure_logs
from supervisor.running import SIGNALS, run_worker
from supervisor.self_check import refuse_what_is_in_the_way, self_checks
from supervisor.settings import Backend, CgroupsWanted, ContainerOutput, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from supervisor.left import Left
    from supervisor.reloading import SettingsSource


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
@click.option(
    "--on-drain",
    type=click.Choice(["suspend", "stop"]),
    default="suspend",
    show_default=True,
    help="What SIGTERM does to running actors.",
)
@click.option(
    "--drain-timeout",
    type=Seconds(),
    default=120.0,
    show_default=True,
    help="Seconds from SIGTERM to the end of everything; the pod's grace period is some 10 s longer.",
)
@click.option(
    "--termination-message",
    type=PLACE,
    help="File for what became of the actors  [default: /dev/termination-log, where that is]",
)
@click.option(
    "--cgroups",
    type=click.Choice([str(each) for each in CgroupsWanted]),
    default=str(CgroupsWanted.AUTO),
    show_default=True,
    help="Whether the worker's own cgroup (v2) is divided among its actors, which limits and measures them.",
)
@click.option(
    "--cgroup-root", type=PLACE, default=str(CGROUP_ROOT), show_default=True, help="Where cgroup v2 is mounted."
)
@click.option(
    "--http-listen",
    type=ListenAt(),
    metavar="HOST:PORT",
    help="Where health and metrics are served, besides http.sock in the run directory  [default: nowhere]",
)
@click.option(
    "--metrics-per-actor", is_flag=True, help="The metrics also tell what each actor uses, by its uid  [default: no]"
)
@click.option(
    "--otlp-endpoint",
    type=CollectorAt(),
    metavar="URL",
    help="OpenTelemetry collector for spans, by OTLP over HTTP  [default: as OTEL_EXPORTER_OTLP_ENDPOINT says]",
)
@click.option(
    "--container-output",
    type=click.Choice(["auto", *map(str, ContainerOutput)]),
    default="auto",
    show_default=True,
    help="Whether containers' lines also go to stdout, labelled; auto: in a pod they do.",
)
@click.option(
    "--control-uid",
    type=click.IntRange(0, UID_MAX),
    multiple=True,
    metavar="UID",
    help="Who may ask at the control socket besides root; may be repeated  [default: nobody]",
)
@click.option("--backend", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
@click.option("--log-format", type=click.Choice(["auto", "json", "console"]), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
@config_option
@click.pass_context
def run(context: click.Context, /, **values: Any) -> None:
    """Run the worker: take assignments, drive actors, leave cleanly on SIGTERM."""
    with last_words(values["termination_message"]) as tell_left:
        _start(context, values, tell_left)


def _start(context: click.Context, values: Mapping[str, Any], tell_left: Callable[[Left], None]) -> None:
    if effective_uid() != 0:
        raise ProblemError(_not_root())
    threshold = configure_logs(LogFormat(values["log_format"]), level=values["log_level"])
    raise_file_limit()
    settings = settings_of(values)
    refuse_what_is_in_the_way(self_checks(look_at_ourselves(), max_actors=settings.max_actors))
    take_rights_away(settings.state_dir, stat.S_IRWXG | stat.S_IRWXO)
    # Others may go through it, to a socket that they may use; nobody else may put another one in its place.
    take_rights_away(settings.run_dir, stat.S_IWGRP | stat.S_IWOTH)
    source = source_of(context, settings_of, threshold.use)
    anyio.run(_run, settings, source, tell_left, backend=str(Backend(values["backend"])))


def settings_of(values: Mapping[str, Any]) -> Settings:
    """The settings out of all values of the command; every path absolute."""
    return Settings(
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
        http_listen=values["http_listen"],
        metrics_per_actor=values["metrics_per_actor"],
        collector=collector_of(values["otlp_endpoint"]),
        control_uids=frozenset(values["control_uid"]),
        container_output=_container_output(values["container_output"]),
        cgroups=CgroupsWanted(values["cgroups"]),
        cgroup_root=values["cgroup_root"].absolute(),
        **gpu_settings(values),
    )


def _container_output(word: str) -> ContainerOutput:
    if word == "auto":
        return ContainerOutput.STDOUT if in_pod() else ContainerOutput.FILE
    return ContainerOutput(word)


async def _run(settings: Settings, source: SettingsSource | None, tell_left: Callable[[Left], None]) -> None:
    roots = (settings.state_dir, settings.run_dir)
    # A second SIGTERM that comes when all is done must not turn a clean end into a death by signal.
    async with (
        open_span_export(settings.collector) as spans,
        open_host_ports(
            roots=roots,
            gpu_monitor=settings.gpu_monitor,
            cgroup_root=settings.cgroup_root,
            ignored_afterwards=SIGNALS,
        ) as ports,
        open_log_world(settings) as log_world,
    ):
        await run_worker(ports, settings, source=source, tell_left=tell_left, log_world=log_world, spans=spans)


def _not_root() -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.RUNTIME_UNAVAILABLE,
        subject="worker",
        message=f"gVisor needs root to make its namespaces, and this is uid {effective_uid()}",
        hint="Run the worker as root.",
    )
