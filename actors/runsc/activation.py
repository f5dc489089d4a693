"""A whole sandbox, started cold or restored. The order of commands is here and nowhere else.

Measured on runsc 20240729: containers can be created beside each other and beside the root's start; a sub-container
that is started before its root kills the sandbox; sub-containers can be started, and restored, all at once.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from actors.concurrency import together
from actors.ports import AppendTo
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .cover import Cover
from .driver import Runsc, Target
from .gofers import gofer_pid
from .record import ROOT_CONTAINER, SandboxRecord, write_record
from .sandbox import SANDBOX_LOG, Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.manifest import Shape
    from actors.ports import Child


@attrs.frozen(kw_only=True)
class ContainerPlan:
    """One application container that is to run.

    Attributes:
        name: its name in the actor.
        bundle: the directory of our own config.json.
        log: where its output is appended.
        env: its environment (`NAME=value`), whose values no problem may carry.
        enter: the words before each command that starts its gofer, so that it begins in its cgroup.
        cover: what lies over its rootfs, where something would be made in it.
    """

    name: str
    bundle: Path
    log: Path
    env: tuple[str, ...] = attrs.field(default=(), repr=False)
    enter: tuple[str, ...] = ()
    cover: Cover | None = None


@attrs.frozen(kw_only=True)
class SandboxPlan:
    """One activation that is to be.

    Attributes:
        record: its ids and runtime; no process is known yet.
        pause_bundle: the directory of the root's bundle.
        containers: the application containers, in the order of declaration; for a restore only those of the snapshot.
        enter: the words before the command that makes the sandbox, as of a container.
    """

    record: SandboxRecord
    pause_bundle: Path
    containers: tuple[ContainerPlan, ...]
    enter: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The application containers' names."""
        return tuple(container.name for container in self.containers)

    def noting(self, shapes: Mapping[str, Shape]) -> SandboxPlan:
        """The same, where it is written down what these containers are: their bundles do not tell."""
        belongings = self.record.belongings
        if belongings is None or not shapes:
            return self
        noted = attrs.evolve(belongings, shapes=shapes)
        return attrs.evolve(self, record=attrs.evolve(self.record, belongings=noted))

    @property
    def root(self) -> Target:
        """The sandbox's root."""
        return attrs.evolve(Target.of(ROOT_CONTAINER, self.record.root_id), enter=self.enter)

    def target(self, container: ContainerPlan) -> Target:
        """One of its containers, for a command."""
        target = Target.of(container.name, self.record.container_ids[container.name], env=container.env)
        words = () if container.cover is None else container.cover.words()
        return attrs.evolve(target, enter=container.enter, cover=words)


async def start_cold(runsc: Runsc, plan: SandboxPlan) -> Sandbox:
    """Start every container from its bundle and return the running sandbox.

    On failure, or when cancelled, what was started is left to `teardown.end_activation`, which finds it.

    Raises:
        ProblemError: the first failure: CommandNotFound, RuntimeFailed, SandboxDied, StepDeadlineExceeded,
            StateUnwritable, …
    """
    await write_record(runsc.files, runsc.activation, plan.record, step=Step.CREATE)
    pid = await runsc.create_root(plan.root, bundle=plan.pause_bundle, output=_sandbox_log(runsc))
    process = await _adopt_sandbox(runsc, pid, Step.CREATE)
    try:
        record = attrs.evolve(plan.record, sandbox=process.identity)
        await together(
            partial(write_record, runsc.files, runsc.activation, record, step=Step.CREATE),
            partial(runsc.start_root, plan.root),
            *(partial(runsc.create_sub, plan.target(each), bundle=each.bundle) for each in plan.containers),
        )
        await together(
            *(partial(runsc.start_sub, plan.target(each), output=AppendTo(each.log)) for each in plan.containers)
        )
        return await _running(runsc, plan, record, process, Step.CREATE)
    except BaseException:
        process.close()
        raise


async def start_restored(runsc: Runsc, plan: SandboxPlan, image: Path) -> Sandbox:
    """Restore every container from a snapshot's files and return the sandbox.

    All commands have succeeded when this returns; only that tells that the sandbox was restored, no state does. That
    its containers live and serve is for the caller to see. On failure as `start_cold`.

    Args:
        runsc: the driver.
        plan: the same container names as in the snapshot, all of them: one that is missing leaves the others in limbo.
        image: the directory of the snapshot's files.

    Raises:
        ProblemError: the first failure.
    """
    await write_record(runsc.files, runsc.activation, plan.record, step=Step.RESTORE)
    pid = await runsc.restore_root(plan.root, bundle=plan.pause_bundle, image=image, output=_sandbox_log(runsc))
    process = await _adopt_sandbox(runsc, pid, Step.RESTORE)
    try:
        record = attrs.evolve(plan.record, sandbox=process.identity)
        await together(
            partial(write_record, runsc.files, runsc.activation, record, step=Step.RESTORE),
            *(
                partial(
                    runsc.restore_sub, plan.target(each), bundle=each.bundle, image=image, output=AppendTo(each.log)
                )
                for each in plan.containers
            ),
        )
        return await _running(runsc, plan, record, process, Step.RESTORE)
    except BaseException:
        process.close()
        raise


async def _running(runsc: Runsc, plan: SandboxPlan, record: SandboxRecord, process: Child, step: Step) -> Sandbox:
    """Own the gofers, write them down, and hand over the sandbox."""
    targets = {ROOT_CONTAINER: plan.root, **{each.name: plan.target(each) for each in plan.containers}}
    gofers: dict[str, Child] = {}
    try:
        for name, target in targets.items():
            gofer = await _adopt_gofer(runsc, target, record.root_id, step)
            if gofer is not None:
                gofers[name] = gofer
        identities = {name: gofer.identity for name, gofer in gofers.items()}
        complete = attrs.evolve(record, gofers=identities)
        await write_record(runsc.files, runsc.activation, complete, step=step)
    except BaseException:
        for gofer in gofers.values():
            gofer.close()
        raise
    return Sandbox(runsc=runsc, record=complete, process=process, gofers=gofers, targets=targets)


async def _adopt_sandbox(runsc: Runsc, pid: int, step: Step) -> Child:
    try:
        return await runsc.processes.adopt(pid)
    except ProcessLookupError as error:
        message = f"the sandbox ended before it could be watched (pid {pid})"
        problem = Problem(step=step, reason=Reason.SANDBOX_DIED, subject=ROOT_CONTAINER, message=message)
        raise ProblemError(problem) from error
    except OSError as error:
        raise ProblemError(_unwatchable(step, ROOT_CONTAINER, pid, error)) from error


async def _adopt_gofer(runsc: Runsc, target: Target, sandbox_id: str, step: Step) -> Child | None:
    """Own a container's gofer; None when it is gone, which says that the container has ended already."""
    pid = await gofer_pid(
        runsc.files, runsc.root, name=target.name, container_id=target.id, sandbox_id=sandbox_id, step=step
    )
    try:
        return await runsc.processes.adopt(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        raise ProblemError(_unwatchable(step, target.name, pid, error)) from error


def _unwatchable(step: Step, name: str, pid: int, error: OSError) -> Problem:
    """A process that is there and cannot be owned: no descriptor to be had."""
    message = f"process {pid} cannot be watched: {error.strerror or error}"
    return Problem(step=step, reason=Reason.RUNTIME_FAILED, subject=name, message=message)


def _sandbox_log(runsc: Runsc) -> AppendTo:
    return AppendTo(runsc.activation / SANDBOX_LOG)
