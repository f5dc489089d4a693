"""The bundles of an activation: named, written and planned, by whichever step comes first to it.

That is `inject` for an actor with a claim, as only it knows what goes into each config.json, and `create` or `restore`
for every other one. Whatever is made is below the activation's directory, with which teardown removes it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from actors.bundle import seccomp, writer
from actors.bundle.capabilities import Claims, claims_of
from actors.bundle.config import Membership, hostname_of
from actors.bundle.writer import confine_path
from actors.concurrency import together
from actors.gpu.injection_plan import gpus_brought
from actors.manifest import shape_of
from actors.runsc.activation import ContainerPlan, SandboxPlan
from actors.runsc.cover import Cover
from actors.runsc.driver import Runsc
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.nvproxy import decide
from actors.runsc.record import ROOT_CONTAINER, SandboxRecord
from actors.steps.stage import RUNSC_ROOT, Freeze
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from actors.assignment import Container
    from actors.runsc.flags import GlobalFlags
    from actors.runsc.nvproxy import NvproxyChoice
    from actors.steps.stage import Stage
    from actors.strict_json import JsonObject

    Finish: TypeAlias = Callable[[Container, JsonObject], Awaitable[JsonObject]]
    """What makes of a container's config.json without any device the one that is written."""


async def _as_it_is(_container: Container, pristine: JsonObject) -> JsonObject:
    return pristine


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
    """Name a fresh activation, write the bundle of each container and of pause, and plan the sandbox.

    Args:
        stage: the actor's.
        containers: those that are to run.
        step: whose problems it are.
        finish: what a container's document still goes through; it may write below the activation.

    Raises:
        ProblemError: a bundle is refused, or StateUnwritable.
    """
    wall = stage.ports.wall
    activation = stage.state_dir.activation(fresh_activation(wall))
    # From here on teardown knows what to remove, whatever happens next.
    stage.activation, stage.plan, stage.sandbox, stage.freeze = activation, None, None, Freeze.NOT_FROZEN
    stage.flags = flags_of(stage)
    ids = fresh_container_ids(wall, (ROOT_CONTAINER, *(container.name for container in containers)))
    writing = _Writing(stage=stage, activation=activation, sandbox_id=ids[ROOT_CONTAINER], finish=finish)
    try:
        await together(writing.pause, *(partial(writing.one, each) for each in containers))
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
    return SandboxPlan(
        record=SandboxRecord(
            activation=activation.name,
            actor=stage.assignment.uid,
            boot_id=wall.boot_id(),
            runtime_path=stage.runtime.path,
            runtime_version=stage.runtime.version.text,
            flags=stage.flags,
            container_ids=ids,
        ),
        pause_bundle=writer.bundle_directory(activation, ROOT_CONTAINER),
        containers=tuple(
            ContainerPlan(
                name=each.name,
                bundle=writer.bundle_directory(activation, each.name),
                log=stage.directory.log(each.name),
                env=writing.envs[each.name],
                cover=writing.covers.get(each.name),
            )
            for each in containers
        ),
    )


def flags_of(stage: Stage) -> GlobalFlags:
    """The global flags of this actor's sandboxes: decided once for an activation, the same at each of its commands.

    From the claims alone, so that a snapshot's are those of its restore.
    """
    choice, filters = _nvproxy(stage), seccomp.flags_for(_claims(stage))
    return stage.runtime.flags.more(extra=(*choice.flags, *filters), annotations=choice.annotations)


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


@attrs.frozen(kw_only=True)
class _Writing:
    """One activation's bundles.

    Attributes:
        envs: of each container that is written, its environment, whose values no problem may carry.
        covers: what lies over the rootfs of each container that got mounts of ours.
    """

    stage: Stage
    activation: Path
    sandbox_id: str
    finish: Finish
    envs: dict[str, tuple[str, ...]] = attrs.field(factory=dict, repr=False)
    covers: dict[str, Cover] = attrs.field(factory=dict)

    async def pause(self) -> None:
        """The sandbox's root: no step finishes it, so that it never gets a device."""
        stage = self.stage
        hostname, machine = hostname_of(stage.assignment), stage.runtime.machine
        told = dict(each.split("=", 1) for each in stage.flags.annotations)
        files, activation = stage.ports.files, self.activation
        await writer.write_pause_bundle(files, activation, hostname=hostname, machine=machine, annotations=told)
        if _claims(stage) is not Claims.NONE:
            await writer.write_confine(files, activation, machine=machine)
            await writer.write_cover(files, activation, machine=machine)

    async def one(self, container: Container) -> None:
        """A container."""
        stage = self.stage
        pristine = await writer.compose(
            stage.ports.files,
            container,
            membership=Membership(name=container.name, sandbox_id=self.sandbox_id),
            hostname=hostname_of(stage.assignment),
            claims=_claims(stage),
        )
        require_no_gpus(container.name, pristine)
        config = await self.finish(container, pristine)
        if config is not pristine:
            self.covers[container.name] = await self._cover(container.name, config)
        stage.shapes[container.name] = shape_of(config)
        self.envs[container.name] = tuple(str(each) for each in config["process"].get("env") or ())
        await writer.write_bundle(stage.ports.files, writer.bundle_directory(self.activation, container.name), config)

    async def _cover(self, name: str, config: JsonObject) -> Cover:
        """Its mount points are made in its rootfs, which is not ours to write to, and which others may share."""
        rootfs, scratch = Path(config["root"]["path"]), self.activation / "covers" / name
        await self.stage.ports.files.make_directory_for_boot(scratch)
        return Cover(program=writer.cover_path(self.activation), rootfs=rootfs, scratch=scratch)


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
