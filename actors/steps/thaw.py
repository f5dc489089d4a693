"""thaw: a suspend came to nothing; the sandbox runs again, and what was not proven is gone.

Needs the sandbox. Resumes it exactly once, and only when we froze it, on a budget of its own. Fails with what runsc
says; the machine then ends the sandbox as CouldNotThaw. Files that cannot be removed never cost the running actor:
they are tried again by the next step that removes unproven files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from actors import snapshots
from actors.steps.stage import Freeze
from statemachine.events import Thawed
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from actors.steps.stage import Stage


async def thaw(stage: Stage) -> Thawed:
    """Perform Thaw."""
    with anyio.CancelScope(shield=True):
        await resume_once(stage, Step.THAW)
    await remove_unproven(stage)
    return Thawed()


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
    stage.freeze = Freeze.NOT_FROZEN
    await stage.mark(step, "Resumed")


async def remove_unproven(stage: Stage) -> None:
    """Remove the files of a snapshot that was not proven; what cannot be removed is kept in mind."""
    if stage.unproven is None:
        return
    try:
        await snapshots.remove(stage.ports.files, stage.unproven)
    except OSError:
        return
    stage.unproven = None
