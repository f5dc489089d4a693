"""suspend: freeze, look, save, prove. The actor runs on until the snapshot is known to be whole.

Needs the live sandbox. Makes `snapshots/<id>/`: checkpoint files, proven (durable, digested), then the manifest last; a
directory without one is no snapshot. Undone by thaw or teardown, which remove it. Refuses (nothing was touched) what
`refusals` says. Containers that ended with 0 are then taken out of the sandbox, since an image with an exited container
can never be restored. The sandbox stays frozen after success: it will never run again, and so cannot run past its
snapshot.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from actors.assignment import SnapshotScope
from actors.codec import rfc3339
from actors.concurrency import together
from actors.manifest import Manifest, RuntimeFacts, SnapshotContainer, SnapshotGpu, demanded, write_manifest
from actors.proof import prove, unwritten
from actors.runsc.answers import Status
from actors.snapshots import fresh_snapshot_id, newest, snapshot_of
from actors.steps import live_cuda, refusals
from actors.steps.hooks import before_suspend
from actors.steps.room import is_full
from actors.steps.stage import Freeze
from actors.steps.volumes import save_volumes
from statemachine.events import SnapshotProven, SuspendRefused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.manifest import SnapshotFile
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage
    from statemachine.actor import Actor

_APART_S: Final = 0.001
"""Two snapshots are at least so far apart: the resolution of their time as text."""


async def save_snapshot(stage: Stage, actor: Actor) -> SnapshotProven | SuspendRefused:
    """Perform SaveSnapshot."""
    sandbox = stage.live_sandbox(Step.SUSPEND)
    created_at_s = await _later_than_all(stage)
    snapshot_id = fresh_snapshot_id(stage.ports.wall)
    stage.unproven = stage.directory.snapshot(snapshot_id)
    try:
        await refusals.before_hooks(stage, sandbox, actor, stage.unproven)
        await before_suspend(stage, actor)
        cuda_checkpoint = await refusals.before_freeze(stage, sandbox, stage.unproven)
    except ProblemError as error:
        return SuspendRefused(problem=error.problem)
    scope = stage.assignment.suspend.scope
    if scope is SnapshotScope.FULL:
        await _take_out_completed(stage, sandbox, actor)
    await _freeze(stage, sandbox)
    if scope is SnapshotScope.FULL:
        await _save_image(stage, sandbox, stage.unproven, cuda_checkpoint)
    await save_volumes(stage, stage.unproven)
    await stage.mark(Step.SUSPEND, "FilesWritten")
    volumes = stage.assignment.durable_volumes
    files = await prove(stage.ports.files, stage.unproven, required=demanded(scope, volumes))
    await stage.mark(Step.SUSPEND, "FilesProven")
    manifest = _manifest(stage, snapshot_id, created_at_s, files, cuda_checkpoint)
    await _write_manifest(stage, stage.unproven, manifest)
    # It stays unproven on this stage until the machine has heard of it, which is when release begins.
    return SnapshotProven(snapshot=snapshot_of(manifest, stage.unproven))


async def _freeze(stage: Stage, sandbox: Sandbox) -> None:
    # Counted as frozen before it is asked for: when runsc was cut off or failed in between, nobody knows, and never
    # resuming would leave a frozen actor that is called Running.
    stage.freeze = Freeze.FROZEN
    try:
        await sandbox.freeze()
    except ProblemError as error:
        if error.problem.reason is Reason.RUNTIME_UNAVAILABLE:  # runsc did not even begin
            stage.freeze = Freeze.NOT_FROZEN
        raise
    await stage.mark(Step.SUSPEND, "Paused")


async def _save_image(stage: Stage, sandbox: Sandbox, directory: Path, cuda_checkpoint: str | None) -> None:
    """Look at everything, then save it."""
    if cuda_checkpoint is None:
        await live_cuda.require_no_open_device(stage, sandbox)
    await _look(stage, sandbox)
    await _checkpoint(stage, sandbox, directory, cuda_checkpoint)
    if cuda_checkpoint is not None:
        # To run cuda-checkpoint, the sandbox unfroze itself for a moment.
        await _look(stage, sandbox)


async def _take_out_completed(stage: Stage, sandbox: Sandbox, actor: Actor) -> None:
    for fate in actor.containers:
        if fate.exit_code == 0 and fate.name not in stage.exited:
            await sandbox.delete_exited(fate.name)
            stage.exited[fate.name] = 0
            await stage.mark(Step.SUSPEND, f"Deleted {fate.name}")


async def _look(stage: Stage, sandbox: Sandbox) -> None:
    """Inspect every application container, now that none can change; all at once, since the actor stands still.

    Raises:
        ProblemError: ContainerExited; OperationInProgress while something that was executed inside lives.
    """
    names = [name for name in sandbox.containers if name not in stage.exited]
    await together(*(partial(_require_alive, sandbox, name) for name in names))
    await refusals.require_no_exec(stage, sandbox)


async def _require_alive(sandbox: Sandbox, name: str) -> None:
    state = await sandbox.inspect(name)
    if state.status is Status.STOPPED:
        raise ProblemError(refusals.exited(name, "exit code not yet known"))


async def _checkpoint(stage: Stage, sandbox: Sandbox, directory: Path, cuda_checkpoint: str | None) -> None:
    """Save into a fresh directory.

    Raises:
        ProblemError: InsufficientDisk, or what runsc says.
    """
    try:
        await sandbox.checkpoint_into(directory, cuda_checkpoint=cuda_checkpoint)
    except OSError as error:
        raise ProblemError(_unwritten(directory, f"{directory} cannot be made", error)) from error
    except ProblemError as error:
        if error.problem.reason is not Reason.RUNTIME_FAILED or not await is_full(stage.ports.files, directory):
            raise
        # Measured on runsc 20240729: a disk that is full before the first page is written ends in the text of a panic
        # (`invalid memory address`), which says nothing of the disk.
        raise ProblemError(
            Problem(
                step=Step.SUSPEND,
                reason=Reason.INSUFFICIENT_DISK,
                subject=str(directory),
                message=f"the disk is full: {error.problem.message}",
                detail=error.problem.detail,
            )
        ) from error


async def _write_manifest(stage: Stage, directory: Path, manifest: Manifest) -> None:
    """Make a snapshot of the directory.

    Raises:
        ProblemError: InsufficientDisk, StateUnwritable.
    """
    try:
        await write_manifest(stage.ports.files, directory, manifest)
    except OSError as error:
        raise ProblemError(_unwritten(directory, "the manifest cannot be written", error)) from error
    await stage.mark(Step.SUSPEND, "ManifestWritten")


def _unwritten(directory: Path, what: str, error: OSError) -> Problem:
    message = f"{what}: {error.strerror or error}"
    return Problem(step=Step.SUSPEND, reason=unwritten(error), subject=str(directory), message=message)


async def _later_than_all(stage: Stage) -> float:
    """Now, but after every snapshot that there is: a clock that went back must not make an older one the newest."""
    before = await newest(stage.ports.files, stage.directory.snapshots)
    now_s = stage.ports.wall.now_s()
    return now_s if before is None else max(now_s, before.created_at + _APART_S)


def _manifest(
    stage: Stage, snapshot_id: str, created_at_s: float, files: tuple[SnapshotFile, ...], cuda_checkpoint: str | None
) -> Manifest:
    runtime, wall, scope = stage.runtime, stage.ports.wall, stage.assignment.suspend.scope
    # Without an image every container starts anew, whether it has ended or not.
    exited = stage.exited if scope is SnapshotScope.FULL else {}
    return Manifest(
        actor=stage.assignment.uid,
        id=snapshot_id,
        created_at=rfc3339(created_at_s),
        generation=stage.assignment.generation,
        scope=scope,
        greenroom=runtime.greenroom,
        boot_id=wall.boot_id(),
        arch=runtime.machine,
        cpu_features=runtime.cpu_features,
        runsc=RuntimeFacts(
            version=runtime.version.text,
            sha256=runtime.sha256,
            platform=stage.flags.platform,
            flags=stage.flags.as_list(),
        ),
        driver=None if stage.spec is None else stage.spec.driver,
        toolkit=None if stage.spec is None else stage.spec.toolkit,
        cuda_checkpoint=cuda_checkpoint,
        containers=tuple(
            SnapshotContainer(
                name=each.name,
                image_digest=each.image_digest,
                shape=stage.shapes[each.name],
                gpus=_gpus(stage, each.name),
                exited=exited.get(each.name),
            )
            for each in stage.assignment.containers
        ),
        volumes=stage.assignment.durable_volumes,
        files=files,
    )


def _gpus(stage: Stage, container: str) -> tuple[SnapshotGpu, ...]:
    """What a container that is restored must find again at each ordinal, and what it will be told it had."""
    return tuple(
        SnapshotGpu(ordinal=ordinal, uuid=gpu.uuid, model=gpu.model, minor=gpu.minor, pci_bus_id=gpu.pci_bus_id)
        for ordinal, gpu in enumerate(stage.granted.get(container, ()))
    )
