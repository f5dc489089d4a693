"""restore: the snapshot is judged and verified before anything is touched, then sandbox and containers are restored.

Needs the snapshot; of an actor with a claim, what inject has made. Makes what create makes, and gives the durable
volumes the content that they have in the snapshot; without an image in it (scope Data) the containers are then started
cold. Refuses (nothing was created): SnapshotMissing, SnapshotCorrupt, NewerFormat, SnapshotIncompatible, BundleChanged,
MountMissing, DriverUnsupportedByRuntime, InvalidBundle, BundleNotFound, RootfsNotFound. It is done when every runsc
call has ended with 0; that the actor lives and serves is for verify to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.assignment import SnapshotScope
from actors.proof import verify
from actors.runsc.activation import start_cold, start_restored
from actors.steps.bundles import bundles_of, driver, require_known_driver
from actors.steps.fetching import drop_damaged_copy, fetched
from actors.steps.origin import judge, take_over, tell_forced
from actors.steps.volumes import restore_volumes
from statemachine.events import RestoreRefused, SandboxRestored
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from actors.steps.stage import Stage
    from statemachine.commands import RestoreSandbox


async def restore_sandbox(stage: Stage, command: RestoreSandbox) -> SandboxRestored | RestoreRefused:
    """Perform RestoreSandbox."""
    try:
        uri = await fetched(stage, command.snapshot)
        origin = await judge(stage, uri, command.on_difference)
        directory, manifest = origin.directory, origin.manifest
        await require_known_driver(stage, step=Step.RESTORE)
        await verify(stage.ports.files, directory, manifest)
    except ProblemError as error:
        await drop_damaged_copy(stage, command.snapshot, error.problem)
        return RestoreRefused(problem=error.problem)
    await stage.mark(Step.RESTORE, "SnapshotVerified")
    await tell_forced(stage)
    plan = await bundles_of(stage, take_over(stage, manifest), step=Step.RESTORE)
    await restore_volumes(stage, directory, manifest)
    if manifest.scope is SnapshotScope.DATA:
        stage.sandbox = await start_cold(driver(stage), plan)
        return SandboxRestored()
    # What lives in it is what was saved, also where another bundle was forced upon it: the next snapshot must say so,
    # and a later life of the worker must know it where the bundles do not tell.
    saved = {each.name: each.shape for each in manifest.containers}
    untold = {name: shape for name, shape in saved.items() if name in stage.exited or shape != stage.shapes[name]}
    stage.shapes |= saved
    stage.is_restored = True
    stage.sandbox = await start_restored(driver(stage), plan.noting(untold), directory)
    return SandboxRestored()
