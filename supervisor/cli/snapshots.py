"""`greenroom snapshots`: the snapshots of a state directory or a store, looked at without asking a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import attrs
import click
import orjson

from actors.compatibility import refusal
from actors.layout import StateDir
from actors.manifest import as_json as manifest_json
from actors.proof import damage
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.checking import verdict_here
from supervisor.cli.asking import json_option
from supervisor.cli.given import admitted
from supervisor.cli.places import PLACE
from supervisor.cli.snapshot_answers import (
    difference_json,
    difference_line,
    failed,
    fault_lines,
    faults_json,
    listed_json,
    pruning_json,
    pruning_lines,
    rows,
    shown_lines,
)
from supervisor.cli.worker_options import (
    CONTEXT,
    StoreAt,
    config_option,
    gpu_options,
    gpu_settings,
    network_option,
    platform_option,
    runsc_option,
    state_dir_option,
)
from supervisor.host.composition import open_host_ports
from supervisor.host.surroundings import find_runsc
from supervisor.kept_snapshots import STEP, faults_in, kept_here, kept_in_store, located
from supervisor.nvml_look import look_at_gpus
from supervisor.planning import claims_any
from supervisor.pruning import plan_pruning, prune_as_planned
from supervisor.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from actors.compatibility import Difference
    from actors.manifest import Manifest
    from actors.ports import FileLock, Ports
    from supervisor.kept_snapshots import KeptSnapshot
    from supervisor.pruning import Pruning

_T = TypeVar("_T")


@click.group()
def snapshots() -> None:
    """Look at snapshots, verify them, and see whether one can be restored here. No worker is asked."""


@snapshots.command("list", context_settings=CONTEXT)
@click.argument("uid", required=False)
@click.option("--store", type=StoreAt(), metavar="URI", help="Those in this store as well.")
@state_dir_option
@config_option
@json_option
def list_snapshots(uid: str | None, store: str | None, state_dir: Path, as_json: bool) -> None:
    """List the snapshots of all actors, or of one; oldest first."""

    async def look(ports: Ports) -> tuple[KeptSnapshot, ...]:
        try:
            here = await kept_here(ports.files, _state_dir(state_dir), uid)
        except ProblemError as error:
            if store is None or error.problem.reason is not Reason.ACTOR_NOT_FOUND:
                raise
            here = ()  # it may never have been on this worker
        return here if store is None else (*here, *await kept_in_store(ports.stores, store, uid))

    found = _with_ports(look)
    if as_json:
        click.echo(orjson.dumps({"snapshots": listed_json(found)}))
        return
    for line in rows(found):
        click.echo(line)


@snapshots.command(context_settings=CONTEXT)
@click.argument("snapshot", metavar="URI|ID")
@state_dir_option
@config_option
@json_option
def show(snapshot: str, state_dir: Path, as_json: bool) -> None:
    """Show what the manifest of a snapshot says; with --json the manifest itself, and where it is."""
    found, manifest = _with_ports(lambda ports: _read(ports, state_dir, snapshot))
    if as_json:
        click.echo(orjson.dumps({"uri": found.uri, "manifest": manifest_json(manifest)}))
        return
    for line in shown_lines(found.uri, manifest):
        click.echo(line)


@snapshots.command(context_settings=CONTEXT)
@click.argument("snapshot", metavar="URI|ID")
@state_dir_option
@config_option
@json_option
def verify(snapshot: str, state_dir: Path, as_json: bool) -> int:
    """Read every byte of a snapshot and say of each file whether it is as the manifest says; 1 if any is not."""

    async def look(ports: Ports) -> tuple[KeptSnapshot, dict[str, str | None]]:
        found, _ = await _read(ports, state_dir, snapshot)
        return found, await faults_in(ports, found)

    found, faults = _with_ports(look)
    if as_json:
        click.echo(orjson.dumps(faults_json(found, faults)))
    else:
        for line in fault_lines(found, faults):
            click.echo(line)
    problems = damage(faults, snapshot=found.id, place=found.uri, step=STEP)
    return failed(problems) if problems else 0


@snapshots.command(context_settings=CONTEXT)
@click.argument("snapshot", metavar="URI|ID")
@click.option("--assignment", type=PLACE, required=True, metavar="FILE", help="The actor that would be restored.")
@network_option
@runsc_option
@platform_option
@gpu_options
@state_dir_option
@config_option
@json_option
def check(snapshot: str, assignment: Path, as_json: bool, **values: Any) -> int:
    """Say whether a snapshot can be restored here for an actor: everything that differs, or nothing; 1 if anything.

    The GPUs are those of a worker on which nobody holds one. The snapshot's files are not read: `verify` does that.
    """
    uri, found = anyio.run(_checked, snapshot, assignment.absolute(), values)
    if as_json:
        document = {"uri": uri, "restorable": not found, "differences": [difference_json(each) for each in found]}
        click.echo(orjson.dumps(document))
    else:
        for each in found:
            click.echo(difference_line(each))
        if not found:
            click.echo("restorable here")
    return failed([attrs.evolve(refusal(found), detail="")]) if found else 0


@snapshots.command(context_settings=CONTEXT)
@click.argument("uid")
@click.option("--keep", type=click.IntRange(min=1), required=True, help="How many good ones stay, the newest.")
@click.option("--dry-run", "dry", is_flag=True, help="Only say what would go.")
@state_dir_option
@config_option
@json_option
def prune(uid: str, keep: int, dry: bool, state_dir: Path, as_json: bool) -> None:
    """Remove the older snapshots of an actor; never the last good one, nor one that an actor may have to go back to.

    Every byte of what is counted as good is read. A worker must not be running on the state directory.
    """
    place = _state_dir(state_dir)

    async def plan(ports: Ports) -> Pruning:
        return await plan_pruning(ports, place, uid, keep=keep)

    async def act(ports: Ports) -> Pruning:
        await kept_here(ports.files, place, uid)  # before a lock is made where there is no state directory
        lock = await _locked(ports, place)
        try:
            planned = await plan(ports)
            await prune_as_planned(ports, planned)
        finally:
            lock.close()
        return planned

    done = _with_ports(plan if dry else act, root=place.root)
    if as_json:
        click.echo(orjson.dumps({"actor": uid, "dryRun": dry, **pruning_json(done)}))
        return
    for line in pruning_lines(done, "would be removed" if dry else "removed"):
        click.echo(line)


def _state_dir(path: Path) -> StateDir:
    return StateDir(path.absolute())


def _with_ports(act: Callable[[Ports], Awaitable[_T]], *, root: Path | None = None) -> _T:
    """Do something with the real ports; below `root` alone is anything written."""

    async def run() -> _T:
        async with open_host_ports(roots=() if root is None else (root,)) as ports:
            return await act(ports)

    return anyio.run(run)


async def _read(ports: Ports, state_dir: Path, name: str) -> tuple[KeptSnapshot, Manifest]:
    found = await located(ports, _state_dir(state_dir), name)
    if found.manifest is None:
        raise ValueError("what was located has a manifest")
    return found, found.manifest


async def _checked(name: str, file: Path, values: dict[str, Any]) -> tuple[str, tuple[Difference, ...]]:
    settings = _settings(values)
    async with open_host_ports(roots=(), gpu_monitor=settings.gpu_monitor) as ports:
        assignment = await admitted(ports.files, file)
        found, manifest = await _read(ports, settings.state_dir, name)
        detected = await look_at_gpus(ports, settings.places) if claims_any(assignment) else None
        return found.uri, await verdict_here(ports, settings, manifest, assignment, detected)


def _settings(values: dict[str, Any]) -> Settings:
    """What a worker would be told that is started beside; what only a worker uses is of no account."""
    state_dir = values["state_dir"].absolute()
    return Settings(
        state_dir=state_dir,
        run_dir=state_dir,
        assignments=None,
        runsc=find_runsc(values["runsc"]),
        platform=values["platform"],
        network=values["network"],
        **gpu_settings(values),
    )


async def _locked(ports: Ports, place: StateDir) -> FileLock:
    try:
        return await ports.files.lock(place.lock)
    except BlockingIOError as error:
        message = f"a worker runs on {place.root}, and removes older snapshots itself"
        raise ProblemError(_of_state(Reason.STATE_DIR_IN_USE, place, message)) from error
    except OSError as error:
        message = f"{place.lock} cannot be locked: {error.strerror or error}"
        raise ProblemError(_of_state(Reason.STATE_UNWRITABLE, place, message)) from error


def _of_state(reason: Reason, place: StateDir, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=str(place.root), message=message)
