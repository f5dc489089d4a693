"""The bundles of an activation: named, written and planned, by whichever step comes first to it.

That is `inject` for an actor with a claim, as only it knows what goes into each config.json, and `create` or `restore`
for every other one. Whatever is made is below the activation's directory, with which teardown removes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs

from actors.bundle import seccomp
from actors.bundle.activation_tree import (
    ContainerFiles,
    activation_tree,
    bundle_directory,
    confine_path,
    cover_path,
    pause_bundle,
    program_to_cover,
    program_to_enter,
    programs_for_claims,
    scratch_path,
)
from actors.bundle.capabilities import Claims, claims_of
from actors.bundle.composing import compose_each
from actors.bundle.config import hostname_of
from actors.bundle.mounts import volume_mount
from actors.cgroups import SANDBOX_LEAF, container_leaf
from actors.gpu.desk import KeptSpec
from actors.gpu.injection_plan import gpus_brought
from actors.manifest import shape_of
from actors.runsc.activation import ContainerPlan, SandboxPlan
from actors.runsc.belongings import Belongings, Granted
from actors.runsc.cover import Cover
from actors.runsc.driver import Runsc
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.nvproxy import decide
from actors.runsc.record import ROOT_CONTAINER, SandboxRecord
from actors.steps.leaf import make_leaf, words_into
from actors.steps.stage import RUNSC_ROOT, Freeze
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    from actors.assignment import Container
    from actors.bundle.mounts import Mount
    from actors.ports import NewDirectory
    from actors.runsc.flags import GlobalFlags
    from actors.runsc.nvproxy import NvproxyChoice
    from actors.steps.stage import Stage
    from actors.strict_json import JsonObject

    Finish: TypeAlias = Callable[[Container, JsonObject], Awaitable[ContainerFiles]]
    """What makes of a container's config.json without any device what is written of it."""


async def _as_it_is(_container: Container, pristine: JsonObject) -> ContainerFiles:
    return ContainerFiles(config=pristine)


async def bundles_of(stage: Stage, containers: Sequence[Container], *, step: Step) -> SandboxPlan:
    """The plan of the activation that is to be started: the one that inject has made, else a fresh one.

    Raises:
        ProblemError: as `prepare`.
        ValueError: the actor claims a device and nothing was injected: it never starts without.
    """
    names = tuple(container.name for container in containers)
    made, stage.plan = stage.plan, None  # taken once: no id is ever used twice
    if made is not None and made.names == names:
        return made
    if _claims(stage) is not Claims.NONE:
        message = f"no devices were injected for {', '.join(names)}"
        raise ValueError(message)
    return await prepare(stage, containers, step=step)


async def prepare(
    stage: Stage, containers: Sequence[Container], *, step: Step, finish: Finish = _as_it_is
) -> SandboxPlan:
    """Name a fresh activation, write the bundle of each container and of pause, make its cgroup, and plan the sandbox.

    Args:
        stage: the actor's.
        containers: those that are to run.
        step: whose problems it are.
        finish: what a container's document still goes through.

    Raises:
        ProblemError: a bundle is refused, or StateUnwritable, or CgroupUnavailable.
    """
    wall = stage.ports.wall
    activation = stage.state_dir.activation(fresh_activation(wall))
    # From here on teardown knows what to remove, whatever happens next.
    stage.activation, stage.plan, stage.sandbox, stage.freeze = activation, None, None, Freeze.NOT_FROZEN
    stage.is_restored, stage.let_go, stage.confirmed = False, (), anyio.Event()
    stage.flags = flags_of(stage)
    ids = fresh_container_ids(wall, (ROOT_CONTAINER, *(container.name for container in containers)))
    try:
        made = await _files_of(stage, containers, finish, ids[ROOT_CONTAINER])
        await stage.ports.files.make_tree(activation, _tree(stage, activation, made))
    except ProblemError as error:
        raise ProblemError(*(_of_step(problem, step) for problem in error.problems)) from error
    except OSError as error:
        raise ProblemError(
            Problem(
                step=step,
                reason=Reason.STATE_UNWRITABLE,
                subject=str(activation),
                message=f"the bundles cannot be written: {error.strerror or error}",
            )
        ) from error
    await make_leaf(stage, activation, containers, step=step)
    return SandboxPlan(
        record=SandboxRecord(
            activation=activation.name,
            actor=stage.assignment.uid,
            boot_id=wall.boot_id(),
            runtime_path=stage.runtime.path,
            runtime_version=stage.runtime.version.text,
            flags=stage.flags,
            container_ids=ids,
            belongings=Belongings(
                runtime_sha256=stage.runtime.sha256,
                granted=tuple(Granted(name, gpus) for name, gpus in stage.granted.items()),
                spec=stage.spec.facts if isinstance(stage.spec, KeptSpec) else stage.spec,
            ),
        ),
        pause_bundle=bundle_directory(activation, ROOT_CONTAINER),
        enter=words_into(stage, activation, SANDBOX_LEAF),
        containers=tuple(
            ContainerPlan(
                name=each.name,
                bundle=bundle_directory(activation, each.name),
                log=stage.directory.log(each.name),
                env=_environment(made[each.name].config),
                enter=words_into(stage, activation, container_leaf(each.name)),
                cover=_cover(activation, each.name, made[each.name]),
            )
            for each in containers
        ),
    )


async def pristine_configs(
    stage: Stage, containers: Sequence[Container], *, sandbox_id: str = ""
) -> dict[str, JsonObject]:
    """The config.json of containers without any device, by name; nothing is written.

    Args:
        stage: the actor's.
        containers: whose.
        sandbox_id: of the sandbox that it is for; nothing that a snapshot's manifest tells depends on it.

    Raises:
        ProblemError: InvalidBundle, BundleNotFound, RootfsNotFound; of the step create.
    """
    composed = await compose_each(
        stage.ports.files,
        containers,
        sandbox_id=sandbox_id,
        hostname=hostname_of(stage.assignment),
        claims=_claims(stage),
        extra_mounts={each.name: volume_mounts(stage, each) for each in containers},
    )
    for name, pristine in composed.items():
        require_no_gpus(name, pristine)
    return composed


def volume_mounts(stage: Stage, container: Container) -> tuple[Mount, ...]:
    """Where a container sees the actor's durable volumes."""
    actor = stage.directory
    return tuple(volume_mount(str(actor.volume(each.name)), each.mount_path) for each in container.volume_mounts)


def flags_of(stage: Stage) -> GlobalFlags:
    """The global flags of this actor's sandboxes: decided once for an activation, the same at each of its commands.

    From the claims alone, so that a snapshot's are those of its restore, but for what lets a forced one be restored.
    """
    choice, filters = _nvproxy(stage), seccomp.flags_for(_claims(stage))
    forcing = stage.runtime.version.forcing_flags if stage.forced else ()
    return stage.runtime.flags.more(extra=(*choice.flags, *filters, *forcing), annotations=choice.annotations)


async def require_known_driver(stage: Stage, *, step: Step) -> None:
    """Refuse to start a sandbox whose runsc does not know the host's driver: it would only end.

    Raises:
        ProblemError: DriverUnsupportedByRuntime.
    """
    driver, drivers = nvidia_driver(stage), stage.runtime.drivers
    problem = None if driver is None or drivers is None else await drivers.verdict(driver, step=step)
    if problem is not None:
        raise ProblemError(problem)


def nvidia_driver(stage: Stage) -> str | None:
    """The driver that this actor's sandbox passes calls on to; None where it passes none on."""
    return stage.spec.driver if stage.spec is not None and _nvproxy(stage).is_on else None


def _claims(stage: Stage) -> Claims:
    return claims_of(stage.assignment.containers)


def _nvproxy(stage: Stage) -> NvproxyChoice:
    return decide(_claims(stage), stage.runtime.nvproxy, stage.runtime.version)


def driver(stage: Stage) -> Runsc:
    """The runsc driver of the live activation."""
    if stage.activation is None:
        raise ValueError("there is no activation to drive")
    return Runsc(
        path=stage.runtime.path,
        flags=stage.flags,
        processes=stage.ports.processes,
        files=stage.ports.files,
        root=stage.activation / RUNSC_ROOT,
        confine=None if _claims(stage) is Claims.NONE else confine_path(stage.activation),
        nvidia_driver=nvidia_driver(stage),
    )


async def _files_of(
    stage: Stage, containers: Sequence[Container], finish: Finish, sandbox_id: str
) -> dict[str, ContainerFiles]:
    """What is to be written of each container."""
    composed = await pristine_configs(stage, containers, sandbox_id=sandbox_id)
    made: dict[str, ContainerFiles] = {}
    for each in containers:
        finished = await finish(each, composed[each.name])
        made[each.name] = attrs.evolve(finished, is_covered=True) if each.volume_mounts else finished
        stage.shapes[each.name] = shape_of(finished.config)
    return made


def _tree(stage: Stage, activation: Path, containers: Mapping[str, ContainerFiles]) -> NewDirectory:
    """The directory of an activation. No step finishes the sandbox's root, so that it never gets a device."""
    machine = stage.runtime.machine
    told = dict(each.split("=", 1) for each in stage.flags.annotations)
    pause = pause_bundle(activation, hostname=hostname_of(stage.assignment), machine=machine, annotations=told)
    is_covered = any(each.is_covered for each in containers.values())
    programs = {} if _claims(stage) is Claims.NONE else programs_for_claims(machine)
    if is_covered:
        programs = {**programs, **program_to_cover(machine)}
    if stage.cgroups is not None:
        programs = {**programs, **program_to_enter(machine)}
    return activation_tree(pause, containers, programs)


def _environment(config: JsonObject) -> tuple[str, ...]:
    """Whose values no problem may carry."""
    return tuple(str(each) for each in config["process"].get("env") or ())


def _cover(activation: Path, name: str, made: ContainerFiles) -> Cover | None:
    """Its mount points are made in its rootfs, which is not ours to write to, and which others may share."""
    if not made.is_covered:
        return None
    rootfs = Path(made.config["root"]["path"])
    return Cover(program=cover_path(activation), rootfs=rootfs, scratch=scratch_path(activation, name))


def _of_step(problem: Problem, step: Step) -> Problem:
    """Composing a bundle is part of several steps; what has a step of its own keeps it."""
    return attrs.evolve(problem, step=step) if problem.step is Step.CREATE else problem


def require_no_gpus(name: str, pristine: JsonObject) -> None:
    """A bundle that brings a GPU by itself would get past every claim, on a node that happens to have it.

    Raises:
        ProblemError: InvalidBundle.
    """
    brought = gpus_brought(pristine)
    if brought:
        message = f"the bundle of {name} brings {', '.join(brought)} itself; GPUs are granted, by claims alone"
        raise ProblemError(Problem(step=Step.CREATE, reason=Reason.INVALID_BUNDLE, subject=name, message=message))
