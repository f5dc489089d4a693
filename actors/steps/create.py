"""create: bundles are written, and sandbox and containers are started cold.

Needs the assignment. Makes `sandboxes/<activation>/` with bundles, runsc's root and the sandbox's processes. Undone by
teardown: the processes first, then the directory. Refuses: RootfsNotFound, BundleNotFound, InvalidBundle; fails with
what runsc says (CommandNotFound, RuntimeFailed, SandboxDied, …).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from actors.bundle import writer
from actors.bundle.capabilities import claims_of
from actors.bundle.config import Membership, hostname_of
from actors.concurrency import together
from actors.manifest import shape_of
from actors.runsc.activation import ContainerPlan, SandboxPlan, start_cold
from actors.runsc.driver import Runsc
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.record import ROOT_CONTAINER, SandboxRecord
from actors.steps.stage import RUNSC_ROOT, Freeze
from statemachine.events import SandboxCreated
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.assignment import Container
    from actors.steps.stage import Stage


async def create_sandbox(stage: Stage) -> SandboxCreated:
    """Perform CreateSandbox."""
    stage.exited = {}
    plan = await prepare(stage, stage.assignment.containers, step=Step.CREATE)
    stage.sandbox = await start_cold(driver(stage), plan)
    return SandboxCreated()


async def prepare(stage: Stage, containers: Sequence[Container], *, step: Step) -> SandboxPlan:
    """Name a fresh activation, write the bundle of each container and of pause, and plan the sandbox.

    Raises:
        ProblemError: a bundle is refused, or StateUnwritable.
    """
    wall = stage.ports.wall
    activation = stage.state_dir.activation(fresh_activation(wall))
    # From here on teardown knows what to remove, whatever happens next.
    stage.activation, stage.sandbox, stage.freeze = activation, None, Freeze.NOT_FROZEN
    ids = fresh_container_ids(wall, (ROOT_CONTAINER, *(container.name for container in containers)))
    envs: dict[str, tuple[str, ...]] = {}
    try:
        await together(
            partial(_write_pause, stage, activation),
            *(partial(_write_one, stage, activation, each, ids[ROOT_CONTAINER], envs) for each in containers),
        )
    except ProblemError as error:
        raise ProblemError(*(attrs.evolve(problem, step=step) for problem in error.problems)) from error
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
            flags=stage.runtime.flags,
            container_ids=ids,
        ),
        pause_bundle=writer.bundle_directory(activation, ROOT_CONTAINER),
        containers=tuple(
            ContainerPlan(
                name=each.name,
                bundle=writer.bundle_directory(activation, each.name),
                log=stage.directory.log(each.name),
                env=envs[each.name],
            )
            for each in containers
        ),
    )


def driver(stage: Stage) -> Runsc:
    """The runsc driver of the live activation."""
    if stage.activation is None:
        raise ValueError("there is no activation to drive")
    return Runsc(
        path=stage.runtime.path,
        flags=stage.runtime.flags,
        processes=stage.ports.processes,
        files=stage.ports.files,
        root=stage.activation / RUNSC_ROOT,
    )


async def _write_pause(stage: Stage, activation: Path) -> None:
    await writer.write_pause_bundle(
        stage.ports.files, activation, hostname=hostname_of(stage.assignment), machine=stage.runtime.machine
    )


async def _write_one(
    stage: Stage, activation: Path, container: Container, sandbox_id: str, envs: dict[str, tuple[str, ...]]
) -> None:
    """Write one container's bundle, and note its environment, whose values no problem may carry."""
    config = await writer.compose(
        stage.ports.files,
        container,
        membership=Membership(name=container.name, sandbox_id=sandbox_id),
        hostname=hostname_of(stage.assignment),
        claims=claims_of(stage.assignment.containers),
    )
    stage.shapes[container.name] = shape_of(config)
    envs[container.name] = tuple(str(each) for each in config["process"].get("env") or ())
    await writer.write_bundle(stage.ports.files, writer.bundle_directory(activation, container.name), config)
