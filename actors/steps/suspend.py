"""suspend: freeze, look, save, prove. The actor runs on until the snapshot is known to be whole.

Needs the live sandbox. Makes `snapshots/<id>/`: checkpoint files, proven (durable, digested), then the manifest last; a
directory without one is no snapshot. Undone by thaw or teardown, which remove it. Refuses with ContainerExited when a
container has failed; those that ended with 0 are taken out of the sandbox first, since an image with an exited
container can never be restored. The sandbox stays frozen after success: it will never run again, and so cannot run
past its snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.assignment import SnapshotScope
from actors.codec import rfc3339
from actors.manifest import Manifest, RuntimeFacts, SnapshotContainer, write_manifest
from actors.proof import FULL, prove
from actors.runsc.answers import Status
from actors.snapshots import fresh_snapshot_id, snapshot_of
from actors.steps.stage import Freeze
from statemachine.events import SnapshotProven, SuspendRefused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.manifest import SnapshotFile
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage
    from statemachine.actor import Actor

FULL_BELOW_BYTES: Final = 1 << 20
"""A disk with less room than that after a failed checkpoint is taken for its cause; even the smallest one is larger."""


async def save_snapshot(stage: Stage, actor: Actor) -> SnapshotProven | SuspendRefused:
    """Perform SaveSnapshot."""
    sandbox = stage.live_sandbox(Step.SUSPEND)
    refusal = _failed_container(actor)
    if refusal is not None:
        return SuspendRefused(problem=refusal)
    await _take_out_completed(stage, sandbox, actor)
    snapshot_id = fresh_snapshot_id(stage.ports.wall)
    stage.unproven = stage.directory.snapshot(snapshot_id)
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
    await _look(stage, sandbox)
    await _checkpoint(stage, sandbox, stage.unproven)
    await stage.mark(Step.SUSPEND, "FilesWritten")
    files = await prove(stage.ports.files, stage.unproven)
    await stage.mark(Step.SUSPEND, "FilesProven")
    manifest = _manifest(stage, snapshot_id, files)
    try:
        await write_manifest(stage.ports.files, stage.unproven, manifest)
    except OSError as error:
        raise ProblemError(
            Problem(
                step=Step.SUSPEND,
                reason=Reason.INSUFFICIENT_DISK if error.errno in FULL else Reason.STATE_UNWRITABLE,
                subject=str(stage.unproven),
                message=f"the manifest cannot be written: {error.strerror or error}",
            )
        ) from error
    await stage.mark(Step.SUSPEND, "ManifestWritten")
    proven, stage.unproven = stage.unproven, None
    return SnapshotProven(snapshot=snapshot_of(manifest, proven))


def _failed_container(actor: Actor) -> Problem | None:
    failed = next((fate for fate in actor.containers if fate.exit_code), None)
    return None if failed is None else _exited(failed.name, f"exit code {failed.exit_code}")


async def _take_out_completed(stage: Stage, sandbox: Sandbox, actor: Actor) -> None:
    for fate in actor.containers:
        if fate.exit_code == 0 and fate.name not in stage.exited:
            await sandbox.delete_exited(fate.name)
            stage.exited[fate.name] = 0
            await stage.mark(Step.SUSPEND, f"Deleted {fate.name}")


async def _look(stage: Stage, sandbox: Sandbox) -> None:
    """Inspect every application container, now that none can change.

    Raises:
        ProblemError: ContainerExited.
    """
    for name in sandbox.containers:
        if name in stage.exited:
            continue
        state = await sandbox.inspect(name)
        if state.status is Status.STOPPED:
            raise ProblemError(_exited(name, "exit code not yet known"))


async def _checkpoint(stage: Stage, sandbox: Sandbox, directory: Path) -> None:
    """Save into a fresh directory.

    Raises:
        ProblemError: InsufficientDisk, or what runsc says.
    """
    try:
        await sandbox.checkpoint_into(directory)
    except OSError as error:
        reason = Reason.INSUFFICIENT_DISK if error.errno in FULL else Reason.STATE_UNWRITABLE
        message = f"{directory} cannot be made: {error.strerror or error}"
        raise ProblemError(
            Problem(step=Step.SUSPEND, reason=reason, subject=str(directory), message=message)
        ) from error
    except ProblemError as error:
        if error.problem.reason is not Reason.RUNTIME_FAILED or not await _is_full(stage, directory):
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


async def _is_full(stage: Stage, directory: Path) -> bool:
    try:
        return await stage.ports.files.free_bytes(directory) < FULL_BELOW_BYTES
    except OSError:
        return False


def _exited(name: str, how: str) -> Problem:
    return Problem(
        step=Step.SUSPEND,
        reason=Reason.CONTAINER_EXITED,
        subject=name,
        message=f"container {name} exited before the snapshot ({how})",
    )


def _manifest(stage: Stage, snapshot_id: str, files: tuple[SnapshotFile, ...]) -> Manifest:
    runtime, wall = stage.runtime, stage.ports.wall
    return Manifest(
        actor=stage.assignment.uid,
        id=snapshot_id,
        created_at=rfc3339(wall.now_s()),
        generation=stage.assignment.generation,
        scope=SnapshotScope.FULL,
        greenroom=runtime.greenroom,
        boot_id=wall.boot_id(),
        arch=runtime.machine,
        runsc=RuntimeFacts(
            version=runtime.version.text,
            sha256=runtime.sha256,
            platform=runtime.flags.platform,
            flags=runtime.flags.as_list(),
        ),
        driver=None,
        toolkit=None,
        containers=tuple(
            SnapshotContainer(
                name=each.name,
                image_digest=each.image_digest,
                shape=stage.shapes[each.name],
                gpus=(),
                exited=stage.exited.get(each.name),
            )
            for each in stage.assignment.containers
        ),
        volumes=(),
        files=files,
    )
