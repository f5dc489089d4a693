"""teardown: the end of an activation, asked for (TERM, grace, KILL) or forced (KILL), and the undo of all it held.

Needs nothing to be alive. The order is that of the command: what was made last goes first. Each part is shielded and
has a budget of its own, so that neither a hung sandbox nor a caller that went away leaves anything behind.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from actors.concurrency import together
from actors.runsc.teardown import end_activation
from actors.snapshots import look_at_snapshot, uri_of, verify_snapshot
from actors.steps.leaf import remove_leaf
from actors.steps.partition import give_back
from actors.steps.stage import Freeze
from actors.steps.thaw import remove_unproven, require_no_unproven, resume_once
from actors.steps.volumes import keep_volumes, settle_volumes
from statemachine.events import OriginVerdict, RolledBack, TornDown
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage
    from statemachine.actor import Snapshot
    from statemachine.commands import RollBack, StopContainers

TELL_S: Final = 1.0
"""Seconds that an ended container's exit code is waited for; it takes runsc some 20 ms to tell."""
KILL_MARGIN_S: Final = 5.0
"""Seconds beside the grace period in which TERM must have been delivered; a hung sandbox takes no signal."""


async def roll_back(stage: Stage, command: RollBack, origin: Snapshot | None) -> RolledBack:
    """Perform RollBack: end at once, undo everything, then look at the snapshot that the activation came from.

    A snapshot that was whole although nobody had heard of it yet is not undone: the actor is dead, and lives in there.
    """
    with anyio.CancelScope(shield=True):
        saved = await _saved(stage)
        if saved is None:
            await remove_unproven(stage)
        await end_sandbox(stage)
        await settle_volumes(stage)
        if saved is None:
            await require_no_unproven(stage)
        give_back(stage, command.undo)
        stage.unproven = None
    return RolledBack(origin=await _judge(stage, origin), saved=saved)


async def stop_containers(stage: Stage, command: StopContainers) -> TornDown:
    """Perform StopContainers: TERM to every live container, the grace period, then KILL and the undo of everything."""
    await remove_unproven(stage)
    if stage.sandbox is not None:
        # Who has run to his end, or is asked to end, has run: what he wrote stays, whether or not he was verified.
        await keep_volumes(stage)
        with anyio.move_on_after(command.grace_s + KILL_MARGIN_S):
            await _ask_to_end(stage, stage.sandbox, command.grace_s)
    with anyio.CancelScope(shield=True):
        await end_sandbox(stage)
        await require_no_unproven(stage)
        give_back(stage, command.undo)
    return TornDown()


async def end_sandbox(stage: Stage) -> None:
    """End the live activation: processes first, then its directory, then its cgroup.

    Raises:
        ProblemError: something is still there; the stage keeps it, to be tried again.
    """
    if stage.activation is None:
        return
    owned = stage.sandbox.owned if stage.sandbox is not None else ()
    await end_activation(stage.ports.processes, stage.ports.files, stage.activation, owned=owned)
    await remove_leaf(stage, stage.activation)
    if stage.sandbox is not None:
        stage.sandbox.close()
    stage.activation, stage.plan, stage.sandbox, stage.freeze = None, None, None, Freeze.NOT_FROZEN


async def _ask_to_end(stage: Stage, sandbox: Sandbox, grace_s: float) -> None:
    try:
        await resume_once(stage, Step.TEARDOWN)
    except ProblemError:
        return  # what cannot be thawed takes no signal either: KILL follows
    names = [name for name in sandbox.containers if name not in stage.exited]
    await together(*(partial(_term, sandbox, name) for name in names))
    with anyio.move_on_after(grace_s):
        await together(*(partial(_ended_and_told, stage, sandbox, name) for name in names))


async def _ended_and_told(stage: Stage, sandbox: Sandbox, name: str) -> None:
    """Wait for a container's end, and a moment for its exit code, which only the living sandbox can tell."""
    await sandbox.ended(name)
    if name not in stage.told or await _told(stage, name):
        return
    # What has ended may have been its file server alone: then it is a living container that has its grace.
    await sandbox.until_stopped(name)
    await _told(stage, name)


async def _told(stage: Stage, name: str) -> bool:
    with anyio.move_on_after(TELL_S):
        await stage.told[name].wait()
    return stage.told[name].is_set()


async def _term(sandbox: Sandbox, name: str) -> None:
    try:
        await sandbox.signal(name, "TERM")
    except ProblemError:
        # It has ended by itself, or hangs: KILL follows either way.
        return


async def _saved(stage: Stage) -> Snapshot | None:
    """The snapshot that was being made, when its manifest, which comes last, is written."""
    if stage.unproven is None:
        return None
    try:
        return await look_at_snapshot(stage.ports.files, uri_of(stage.unproven), step=Step.TEARDOWN)
    except ProblemError:
        return None


async def _judge(stage: Stage, origin: Snapshot | None) -> OriginVerdict:
    if origin is None:
        return OriginVerdict.NONE
    if origin.is_elsewhere:
        # It was found whole in its store, where nothing of this activation is; fetched, it is verified again.
        return OriginVerdict.GOOD
    try:
        await verify_snapshot(stage.ports.files, origin)
    except ProblemError:
        return OriginVerdict.DAMAGED
    return OriginVerdict.GOOD
