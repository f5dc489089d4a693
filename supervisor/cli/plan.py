"""`greenroom plan`: which GPUs an assignment would get, and what each container's config.json gets with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
import orjson

from actors.cdi import SPEC_BYTES_MAX
from actors.gpu.checked_specs import read_strictly, require_right, with_libraries
from actors.gpu.desk import KeptSpec
from actors.gpu.spec_inventory import spec_inventory
from actors.layout import StateDir
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import one_line
from supervisor.cli.asking import json_option
from supervisor.cli.given import admitted
from supervisor.cli.places import PLACE
from supervisor.cli.worker_options import CONTEXT, config_option, gpu_options, gpu_settings, state_dir_option
from supervisor.host.composition import open_host_ports
from supervisor.host.scratch import scratch_directory
from supervisor.nvml_look import look_at_gpus
from supervisor.planning import Given, claims_any, make_plan
from supervisor.spec_source import spec_source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.gpu.detection import Detected
    from actors.gpu.inventory import Gpu
    from actors.ports import Files, Ports
    from supervisor.cli.worker_options import GpuSettings
    from supervisor.planning import Plan

_IDENTITY: Final = "GIVEN"
"""In paths below the state directory, for a spec that a worker would keep under an identity."""
_LINE_CHARACTERS_MAX: Final = 4000


@click.command(context_settings=CONTEXT)
@click.argument("file", type=PLACE)
@click.option(
    "--cdi-spec",
    type=PLACE,
    metavar="FILE",
    help="Plan with this spec; where NVML does not answer, with the GPUs that it names.",
)
@state_dir_option
@gpu_options
@config_option
@json_option
def plan(file: Path, cdi_spec: Path | None, as_json: bool, **values: Any) -> None:
    """Show what would come of a WorkerAssignment: inventory, grants, and the diff of each config.json.

    Nothing is touched and no worker is asked: it is planned as if nobody held a GPU.
    """
    spec = None if cdi_spec is None else cdi_spec.absolute()
    state_dir = StateDir(values["state_dir"].absolute())
    made = anyio.run(_planned, file.absolute(), spec, gpu_settings(values), state_dir)
    if as_json:
        click.echo(orjson.dumps(made.as_json()))
        return
    for line in _lines(made):
        click.echo(one_line(line, _LINE_CHARACTERS_MAX))
    for warning in made.warnings:
        click.echo(f"warning: {one_line(warning, _LINE_CHARACTERS_MAX)}", err=True)


async def _planned(file: Path, cdi_spec: Path | None, settings: GpuSettings, state_dir: StateDir) -> Plan:
    with scratch_directory("greenroom-plan-") as scratch:
        async with open_host_ports(roots=(scratch,), gpu_monitor=settings["gpu_monitor"]) as ports:
            assignment = await admitted(ports.files, file)
            given = Given(warnings=("nothing is claimed, so that no GPU was looked for",))
            if claims_any(assignment):
                given = await _given(ports, settings, cdi_spec, scratch)
            return await make_plan(ports.files, assignment, given, state_dir=state_dir)


async def _given(ports: Ports, settings: GpuSettings, cdi_spec: Path | None, scratch: Path) -> Given:
    """The GPUs and the spec, as far as this machine has them.

    Raises:
        ProblemError: why a worker here would grant nobody a GPU.
    """
    found = await _detected(ports, settings)
    if cdi_spec is not None:
        return await _given_spec(ports.files, cdi_spec, found)
    if isinstance(found, Problem):
        raise ProblemError(found)
    source = spec_source_of(
        ports,
        source=settings["cdi_source"],
        places=settings["places"],
        toolkit_dir=settings["toolkit_dir"],
        directory=scratch / "cdi",
    )
    spec = (await source.make(found.inventory, found.driver, None)).kept
    return Given(inventory=found.inventory, spec=spec, warnings=(*found.warnings, *spec.warnings))


async def _given_spec(files: Files, path: Path, found: Detected | Problem) -> Given:
    """A spec that was named; with it GPUs can be planned with that are not here."""
    kept = KeptSpec(
        identity=_IDENTITY, path=path, spec=read_strictly(await _read_spec(files, path), path), driver="", toolkit=None,
        libraries=(),
    )  # fmt: skip
    if isinstance(found, Problem):
        told = spec_inventory(kept.spec)
        why = f"{found.reason}: {found.message}"
        return Given(inventory=told.inventory, told=told.named, spec=kept, warnings=(*told.warnings, why))
    await require_right(files, kept.spec, found.inventory)
    kept = await with_libraries(files, kept)
    return Given(inventory=found.inventory, spec=kept, warnings=(*found.warnings, *kept.warnings))


async def _detected(ports: Ports, settings: GpuSettings) -> Detected | Problem:
    try:
        return await look_at_gpus(ports, settings["places"])
    except ProblemError as error:
        return error.problem


async def _read_spec(files: Files, path: Path) -> bytes:
    try:
        return await files.read(path, limit_bytes=SPEC_BYTES_MAX)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise ProblemError(
            Problem(step=Step.GENERATE, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message)
        ) from error


def _lines(made: Plan) -> Iterator[str]:
    """The plan for a person."""
    yield f"actor {made.actor}"
    gpus = made.given.inventory.gpus
    yield f"inventory: {len(gpus)} GPUs" if gpus else "inventory: not looked at"
    for gpu in gpus:
        state = f"  lost: {gpu.lost}" if gpu.lost is not None else "  MIG" * (gpu.mig_devices is not None)
        model = f"  {gpu.model}  {gpu.pci_bus_id}" if made.given.told is None else ""
        yield f"  {_named(made, gpu)}{model}{state}"
    yield "grants:"
    width = max(map(len, made.grants))
    for name, granted in made.grants.items():
        told = [f"{ordinal}: {_named(made, gpu)}" for ordinal, gpu in enumerate(granted)] or ["none"]
        for number, line in enumerate(told):
            yield f"  {name if number == 0 else '':<{width}}  {line}"
    for text in made.diffs.values():
        if text:
            yield ""
            yield from text.splitlines()


def _named(made: Plan, gpu: Gpu) -> str:
    return f"{gpu.path}  {made.uuid(gpu) or 'UUID not told'}"
