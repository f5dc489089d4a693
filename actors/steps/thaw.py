"""thaw: a suspend came to nothing; the sandbox runs again, and what was not proven is gone.

Needs the sandbox. Makes room first where a save has filled the disk. Resumes it exactly once, and only when we froze
it, on a budget of its own, and looks whether it runs; where preSuspend was run, postResume follows. Fails with what
runsc says; the machine then ends the sandbox as CouldNotThaw. Files that cannot be removed never cost the running
actor: they are tried again by the next step that removes unproven files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from actors import snapshots
from actors.proof import unwritten
from actors.runsc.answers import Status
from actors.runsc.record import ROOT_CONTAINER
from actors.steps.hooks import after_thaw
from actors.steps.room import is_full
from actors.steps.stage import Freeze
from statemachine.events import Thawed
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage

ROOM_S: Final = 10.0
"""How long a disk that may be full may keep the actor frozen; a removal that hangs is waited for all the same."""


async def thaw(stage: Stage) -> Thawed:
    """Perform Thaw."""
    with anyio.CancelScope(shield=True):
        await _make_room(stage)
        await resume_once(stage, Step.THAW)
    await after_thaw(stage)
    await remove_unproven(stage)
    return Thawed()


async def _make_room(stage: Stage) -> None:
    """Remove first what has filled the disk, with the actor still frozen: runsc writes its state in place.

    Without room that is cut off, and runsc would not know the sandbox any more: nothing could suspend the actor again,
    nor take it over after a restart.
    """
    if stage.freeze is Freeze.NOT_FROZEN or stage.unproven is None:
        return
    with anyio.move_on_after(ROOM_S):
        if await is_full(stage.ports.files, stage.unproven):
            await remove_unproven(stage)


async def resume_once(stage: Stage, step: Step) -> None:
    """Resume the sandbox if we froze it.

    Raises:
        ProblemError: it cannot be resumed.
    """
    if stage.freeze is Freeze.NOT_FROZEN:
        return
    sandbox = stage.live_sandbox(step)
    try:
        await sandbox.thaw()
    except ProblemError:
        # A `pause` that failed has frozen nothing, and runsc refuses to resume what it did not pause. That is no reason
        # to end a healthy actor; but one that is frozen all the same must not be called Running.
        if await sandbox.is_frozen():
            raise
    else:
        await _read_back(sandbox, step)
    stage.freeze = Freeze.NOT_FROZEN
    await stage.mark(step, "Resumed")


async def _read_back(sandbox: Sandbox, step: Step) -> None:
    """Look whether a sandbox that runsc has resumed runs. What cannot be looked at is no reason to end it.

    Raises:
        ProblemError: RuntimeFailed: runsc itself says that it is paused.
    """
    try:
        state = await sandbox.inspect(ROOT_CONTAINER)
    except ProblemError:
        return
    if state.status is Status.PAUSED and await sandbox.is_frozen():
        message = "runsc has resumed the sandbox and says that it is paused"
        raise ProblemError(
            Problem(step=step, reason=Reason.RUNTIME_FAILED, subject=sandbox.runsc.activation.name, message=message)
        )


async def remove_unproven(stage: Stage) -> None:
    """Remove the files of a snapshot that was not proven; what cannot be removed is kept in mind."""
    with suppress(OSError):
        await _remove_unproven(stage)


async def require_no_unproven(stage: Stage) -> None:
    """Remove them likewise: who is at rest holds nothing, and no later step would come to it.

    Raises:
        ProblemError: StateUnwritable, InsufficientDisk.
    """
    try:
        await _remove_unproven(stage)
    except OSError as error:
        message = f"what is left of an unfinished snapshot cannot be removed: {error.strerror or error}"
        raise ProblemError(
            Problem(step=Step.TEARDOWN, reason=unwritten(error), subject=str(stage.unproven), message=message)
        ) from error


async def _remove_unproven(stage: Stage) -> None:
    if stage.unproven is not None:
        await snapshots.remove(stage.ports.files, stage.unproven)
        stage.unproven = None
