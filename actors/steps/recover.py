"""recover: the stage of an actor whose sandbox outlived the supervisor, as the life before left it.

Needs the sandbox, its record and the assignment. Makes nothing: what it cannot establish it refuses, and the sandbox
is ended then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.bundle.activation_tree import config_path, read_config
from actors.manifest import shape_of
from actors.runsc.answers import Status
from actors.runsc.driver import Target
from actors.runsc.reclaiming import reclaim_sandbox
from actors.runsc.record import ROOT_CONTAINER
from actors.steps.bundles import driver
from actors.steps.stage import Freeze
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from pathlib import Path

    from actors.gpu.inventory import Gpu
    from actors.manifest import Shape
    from actors.runsc.belongings import Belongings
    from actors.runsc.reclaiming import Reclaimed, Survivor
    from actors.steps.stage import Stage
    from statemachine.actor import Actor

LIVE: Final = frozenset({State.RUNNING, State.SUSPENDING, State.THAWING})
"""The states in which a sandbox is gone on with. On the way up it is not known to be whole, on the way down it is to be
ended anyway."""


async def take_over(stage: Stage, survivor: Survivor, actor: Actor) -> Actor:
    """Take over a survivor; returns the actor as it is: one that is frozen is Suspending, though nobody wrote it down.

    Raises:
        ProblemError: something of it cannot be established; the stage is as it was, and nothing is owned.
    """
    belongings = _same_runtime(stage, survivor)
    _require_containers(stage, survivor, belongings, actor)
    stage.activation = stage.state_dir.activation(survivor.record.activation)
    stage.flags, stage.spec = survivor.record.flags, belongings.spec
    try:
        stage.granted = _same_grants(stage, belongings)
        told, targets = await _bundles(stage, survivor)
        stage.shapes = {**told, **belongings.shapes}
        reclaimed = await reclaim_sandbox(driver(stage), survivor, targets)
        try:
            stage.exited = _exited(stage, reclaimed, actor)
            stands_still = await _stands_still(reclaimed, actor)
        except BaseException:
            reclaimed.sandbox.close()
            raise
    except BaseException:
        stage.activation, stage.flags, stage.spec = None, stage.runtime.flags, None
        stage.granted, stage.shapes = {}, {}
        raise
    stage.sandbox = reclaimed.sandbox
    stage.confirmed.set()  # else it would not be gone on with, see LIVE
    if stands_still:
        stage.freeze = Freeze.FROZEN
        stage.sandbox.distrust_saves(stage.directory.snapshots)
        if actor.state is State.RUNNING:
            actor = attrs.evolve(actor, state=State.SUSPENDING)  # there was no disk to write it down on
    if actor.state is not State.RUNNING:
        # Nobody knows whether preSuspend was run: what postResume takes back may be had already.
        stage.let_go = tuple(name for name in stage.sandbox.containers if name not in stage.exited)
    return actor


async def _stands_still(reclaimed: Reclaimed, actor: Actor) -> bool:
    """Whether it is frozen: by runsc's word, and where a command may have been cut off by the sandbox's own."""
    if reclaimed.states[ROOT_CONTAINER].status is Status.PAUSED:
        return True
    return actor.state is not State.RUNNING and await reclaimed.sandbox.is_frozen()


def _same_runtime(stage: Stage, survivor: Survivor) -> Belongings:
    record, runtime = survivor.record, stage.runtime
    if record.belongings is None:
        raise ProblemError(_problem(stage, "an earlier version wrote its record, in which too little stands"))
    if (record.runtime_version, record.belongings.runtime_sha256) != (runtime.version.text, runtime.sha256):
        raise ProblemError(
            _problem(stage, f"it was made by another runsc ({record.runtime_path}, {record.runtime_version})")
        )
    return record.belongings


def _require_containers(stage: Stage, survivor: Survivor, belongings: Belongings, actor: Actor) -> None:
    """What is in the sandbox is the actor's; and of what is not, because it had exited before, all is known."""
    names = {each.name for each in stage.assignment.containers}
    inside = set(survivor.record.container_ids) - {ROOT_CONTAINER}
    if not inside <= names:
        raise ProblemError(_problem(stage, f"it has containers that are not the actor's: {_listed(inside - names)}"))
    outside = names - inside
    codes = {fate.name: fate.exit_code for fate in actor.containers}
    lost = {name for name in outside if codes.get(name) is None or name not in belongings.shapes}
    if lost:
        raise ProblemError(_problem(stage, f"it lacks containers of which nothing is known: {_listed(lost)}"))


def _same_grants(stage: Stage, belongings: Belongings) -> dict[str, tuple[Gpu, ...]]:
    held = {each.container: each.gpus for each in stage.gpus.grants(stage.assignment.uid)}
    granted = {each.container: each.gpus for each in belongings.granted}
    if held != {name: tuple(gpu.uuid for gpu in gpus) for name, gpus in granted.items()}:
        raise ProblemError(_problem(stage, "its GPUs cannot be booked for it"))
    claimed = {each.name: each.gpus for each in stage.assignment.containers if each.gpus}
    if {name: len(gpus) for name, gpus in granted.items() if gpus} != claimed:
        raise ProblemError(_problem(stage, "its GPUs are not what it claims"))
    return granted


async def _bundles(stage: Stage, survivor: Survivor) -> tuple[dict[str, Shape], dict[str, Target]]:
    """What its containers were started with."""
    record, activation = survivor.record, stage.state_dir.activation(survivor.record.activation)
    shapes: dict[str, Shape] = {}
    targets = {ROOT_CONTAINER: Target.of(ROOT_CONTAINER, record.root_id)}
    for name, container_id in record.container_ids.items():
        if name == ROOT_CONTAINER:
            continue
        shapes[name], env = await _config(stage, activation, name)
        targets[name] = Target.of(name, container_id, env=env)
    return shapes, targets


async def _config(stage: Stage, activation: Path, name: str) -> tuple[Shape, tuple[str, ...]]:
    try:
        config = await read_config(stage.ports.files, activation, name)
        return shape_of(config), tuple(str(each) for each in config["process"].get("env") or ())
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{config_path(activation, name)} cannot be read: {error}"
        raise ProblemError(_problem(stage, message)) from error


def _exited(stage: Stage, reclaimed: Reclaimed, actor: Actor) -> dict[str, int]:
    """Containers that are not in the sandbox any more: not restored, or taken out for a suspend."""
    if ROOT_CONTAINER not in reclaimed.states or reclaimed.states[ROOT_CONTAINER].status is Status.STOPPED:
        raise ProblemError(_problem(stage, "runsc does not know its sandbox"))
    codes = {fate.name: fate.exit_code for fate in actor.containers}
    exited: dict[str, int] = {}
    for each in stage.assignment.containers:
        code = codes.get(each.name)
        if each.name in reclaimed.states:
            continue
        if code is None:
            raise ProblemError(_problem(stage, f"runsc does not know container {each.name}"))
        exited[each.name] = code
    return exited


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _problem(stage: Stage, message: str) -> Problem:
    return Problem(step=Step.RECOVER, reason=Reason.SUPERVISOR_RESTARTED, subject=stage.assignment.uid, message=message)
