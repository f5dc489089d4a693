"""`greenroom doctor`: can this pod run GPU actors?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import click
import orjson

from statemachine.problem import ProblemError
from supervisor.cli.asking import own_json_option
from supervisor.cli.worker_options import (
    CONTEXT,
    config_option,
    gpu_options,
    gpu_settings,
    platform_option,
    run_dir_option,
    runsc_option,
    state_dir_option,
)
from supervisor.doctor.check import Status
from supervisor.doctor.examination import Subject, examine, is_sound
from supervisor.host.composition import open_host_ports
from supervisor.host.scratch import scratch_directory
from supervisor.host.self_look import look_at_ourselves
from supervisor.host.surroundings import effective_uid, find_runsc, interpreter, may_change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statemachine.problem import Problem
    from supervisor.doctor.check import Check

_LOUD: Final = {Status.OK: "ok", Status.WARN: "warn", Status.FAIL: "FAIL"}


@click.command(context_settings=CONTEXT)
@state_dir_option
@run_dir_option
@runsc_option
@platform_option
@gpu_options
@config_option
@own_json_option
def doctor(as_json: bool, **values: Any) -> int:
    """Say whether this pod can run GPU actors, each thing with what to do about it; 1 if anything is in the way.

    It takes what a worker would be told, and changes nothing. Without root it looks at less.
    """
    checks = anyio.run(_examined, values)
    sound = is_sound(checks)
    if as_json:
        click.echo(orjson.dumps({"ok": sound, "checks": [check.as_json() for check in checks]}))
    else:
        for line in _lines(checks):
            click.echo(line)
    bad = next((check for check in checks if check.status is Status.FAIL), None)
    if bad is not None:
        click.echo(f"hint: {bad.hint}", err=True)
        click.echo(f"error: {bad.reason}: {bad.name}: {bad.message}", err=True)
    return 0 if sound else 1


async def _examined(values: dict[str, Any]) -> tuple[Check, ...]:
    settings = gpu_settings(values)
    ourselves = look_at_ourselves()  # before the ports make us a subreaper
    with scratch_directory("greenroom-doctor-") as scratch:
        async with open_host_ports(roots=(scratch,), gpu_monitor=settings["gpu_monitor"]) as ports:
            subject = Subject(
                runsc=_runsc(values["runsc"]),
                platform=values["platform"],
                places=settings["places"],
                toolkit_dir=settings["toolkit_dir"],
                cdi_source=settings["cdi_source"],
                nvproxy=settings["nvproxy"],
                state_dir=values["state_dir"].absolute(),
                run_dir=values["run_dir"].absolute(),
                interpreter=interpreter(),
                is_root=effective_uid() == 0,
                may_change=may_change,
                scratch=scratch,
                ourselves=ourselves,
            )
            return await examine(ports, subject)


def _runsc(given: Path | None) -> Path | Problem:
    try:
        return find_runsc(given)
    except ProblemError as error:
        return error.problem


def _lines(checks: tuple[Check, ...]) -> Iterator[str]:
    """A table; below what is not ok stands what to do."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        reason = f"{check.reason}: " if check.reason else ""
        yield f"{_LOUD[check.status]:<4}  {check.name:<{width}}  {reason}{check.message}"
        if check.hint:
            yield f"{'':4}  {'':{width}}  -> {check.hint}"
