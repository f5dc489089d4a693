"""release: the snapshot is proven; the sandbox is ended and everything of the activation goes.

Needs nothing to be alive: it may have died meanwhile. Undo is all that it is. Older snapshots go last: never before the
newer one is proven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from actors.snapshots import prune
from actors.steps.partition import give_back
from actors.steps.teardown import end_sandbox
from statemachine.events import SandboxReleased
from statemachine.problem import Step

if TYPE_CHECKING:
    from actors.steps.stage import Stage
    from statemachine.actor import Snapshot
    from statemachine.commands import ReleaseSandbox


async def release_sandbox(stage: Stage, command: ReleaseSandbox, proven: Snapshot | None) -> SandboxReleased:
    """Perform ReleaseSandbox."""
    stage.unproven = None  # first of all: whatever fails from here on, the snapshot is proven and stays
    with anyio.CancelScope(shield=True):
        await end_sandbox(stage)
        give_back(stage, command.undo)
        await stage.mark(Step.RELEASE, "SandboxEnded")
        if proven is not None:
            in_use = {*stage.uploading(), *stage.needed_by_others()}
            await prune(stage.ports.files, stage.directory.snapshots, proven=proven.id, in_use=in_use)
    return SandboxReleased()
