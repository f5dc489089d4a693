"""What refuses a suspend before anything of the actor is touched: nothing is frozen, deleted or saved, and it runs on.

    before_hooks     what needs nothing of the application
    before_freeze    what its hook may have changed: its CUDA contexts, and its size with them

What is made is the directory of the snapshot, in which a file is written for a try; it is unproven, and goes with the
thaw that follows a refusal. Each refusal is a ProblemError:

    ContainerExited                     a container has ended with a failure, or one that ended well cannot be left out
    NoDurableVolume                     a Data snapshot has nothing to save
    OperationInProgress                 a command that was executed inside, or what it left, is there
    InsufficientDisk, StateUnwritable   the snapshot does not fit, or cannot be written at all
    LiveCudaContext, …                  see `live_cuda`
    RuntimeFailed, ProcessesUnreadable  the sandbox cannot be looked at
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.assignment import SnapshotScope
from actors.proof import unwritten
from actors.steps import live_cuda
from actors.steps.volumes import measure_volumes
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage
    from statemachine.actor import Actor

MARGIN_BYTES: Final = 4 << 20
"""What a snapshot takes beside the memory: gVisor's own state (1.5 MB at most were seen), the manifest, directories."""

_PROBE_NAME: Final = "probe"
_PROBE: Final = bytes(4096)
_MIB: Final = 1 << 20


async def before_hooks(stage: Stage, sandbox: Sandbox, actor: Actor, directory: Path) -> None:
    """Refuse what can be refused without disturbing the application.

    Raises:
        ProblemError: the refusal.
    """
    _require_volumes(stage.assignment)
    if _is_full(stage):
        _require_no_failure(sandbox, actor)
        await require_no_exec(stage, sandbox)
    await _require_writable(stage, directory)
    await _require_room(stage, sandbox, directory)


async def before_freeze(stage: Stage, sandbox: Sandbox, directory: Path) -> str | None:
    """Refuse what the application may have changed since.

    Returns: the path of cuda-checkpoint inside its containers, when CUDA contexts are to be saved with it.

    Raises:
        ProblemError: the refusal.
    """
    if not _is_full(stage):
        return None
    cuda_checkpoint = await live_cuda.settle(stage, sandbox)
    if live_cuda.has_grant(stage):
        # What leaves a GPU goes into memory first.
        await _require_room(stage, sandbox, directory)
    return cuda_checkpoint


def _require_volumes(assignment: WorkerAssignment) -> None:
    """Refuse a Data snapshot of an actor without a durable volume.

    Raises:
        ProblemError: NoDurableVolume.
    """
    if assignment.suspend.scope is SnapshotScope.DATA and not assignment.durable_volumes:
        message = "a Data snapshot saves durable volumes, and the actor has none"
        raise ProblemError(_problem(Reason.NO_DURABLE_VOLUME, assignment.uid, message))


def _require_no_failure(sandbox: Sandbox, actor: Actor) -> None:
    """Refuse an actor of which a container has failed, or has ended and cannot be left out of an image.

    Raises:
        ProblemError: ContainerExited.
    """
    for fate in actor.containers:
        if fate.exit_code:
            raise ProblemError(exited(fate.name, f"exit code {fate.exit_code}"))
        if fate.exit_code == 0 and not sandbox.can_leave_out(fate.name):
            message = f"container {fate.name} has exited and cannot be left out: a command once failed to start in it"
            raise ProblemError(_problem(Reason.CONTAINER_EXITED, fate.name, message))


async def require_no_exec(stage: Stage, sandbox: Sandbox) -> None:
    """Refuse while something lives that was executed inside.

    Raises:
        ProblemError: OperationInProgress; RuntimeFailed when that cannot be looked at.
    """
    uid = stage.assignment.uid
    try:
        is_executing = stage.executions > 0 or await sandbox.is_executing()
    except OSError as error:
        message = f"the sandbox of actor {uid} cannot be looked at: {error.strerror or error}"
        raise ProblemError(_problem(Reason.RUNTIME_FAILED, uid, message)) from error
    if is_executing:
        message = (
            "a command that was executed inside the actor, or what a probe left running, has its stdin, stdout or "
            "stderr still open; a snapshot of it could never be restored"
        )
        raise ProblemError(_problem(Reason.OPERATION_IN_PROGRESS, uid, message))


async def _require_writable(stage: Stage, directory: Path) -> None:
    """Write a file where the snapshot is to be, and remove it; the directory stays.

    Raises:
        ProblemError: InsufficientDisk, StateUnwritable.
    """
    files, probe = stage.ports.files, directory / _PROBE_NAME
    try:
        await files.make_directory(directory)
        await files.replace_for_boot(probe, _PROBE)
        await files.remove_file(probe)
    except OSError as error:
        message = f"nothing can be written into {directory}: {error.strerror or error}"
        raise ProblemError(_problem(unwritten(error), str(directory), message)) from error


def exited(name: str, how: str) -> Problem:
    """ContainerExited: an image with it in could never be restored."""
    message = f"container {name} exited before the snapshot ({how})"
    return _problem(Reason.CONTAINER_EXITED, name, message)


async def _require_room(stage: Stage, sandbox: Sandbox, directory: Path) -> None:
    """Refuse a snapshot that does not fit where it is to be.

    Raises:
        ProblemError: InsufficientDisk, with both numbers; ProcessesUnreadable, StateUnwritable when what it takes or
            what there is cannot be found out.
    """
    image_bytes = await _memory_of(stage, sandbox) if _is_full(stage) else 0
    parts = {"the memory of its containers": image_bytes, "its durable volumes": await measure_volumes(stage)}
    size_bytes = sum(parts.values())
    try:
        free_bytes = await stage.ports.files.free_bytes(directory)
    except OSError as error:
        message = f"the file system of {directory} cannot be looked at: {error.strerror or error}"
        raise ProblemError(_problem(Reason.STATE_UNWRITABLE, str(directory), message)) from error
    needed_bytes = size_bytes + MARGIN_BYTES
    if free_bytes < needed_bytes:
        what = " and ".join(part for part, part_bytes in parts.items() if part_bytes) or "what it holds"
        message = (
            f"the snapshot needs up to {_mib(needed_bytes)} ({_mib(size_bytes)} are {what}), "
            f"and {_mib(free_bytes)} are free at {directory.parent}"
        )
        raise ProblemError(_problem(Reason.INSUFFICIENT_DISK, str(directory.parent), message))


async def _memory_of(stage: Stage, sandbox: Sandbox) -> int:
    try:
        return await sandbox.memory_bytes()
    except OSError as error:
        message = f"the memory of the sandbox cannot be measured: {error.strerror or error}"
        raise ProblemError(_problem(Reason.PROCESSES_UNREADABLE, stage.assignment.uid, message)) from error


def _is_full(stage: Stage) -> bool:
    return stage.assignment.suspend.scope is SnapshotScope.FULL


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB"


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUSPEND, reason=reason, subject=subject, message=message)
