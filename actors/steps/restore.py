"""restore: the snapshot is judged and verified before anything is touched, then sandbox and containers are restored.

Needs the snapshot; of an actor with a claim, what inject has made. Makes what create makes. Refuses (nothing was
created): SnapshotMissing, SnapshotCorrupt, NewerFormat, SnapshotIncompatible, BundleChanged,
DriverUnsupportedByRuntime. It is done when every runsc call has ended with 0; that the actor lives and serves is for
verify to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.proof import verify
from actors.runsc.activation import start_restored
from actors.steps.bundles import bundles_of, driver, require_known_driver
from actors.steps.origin import judge, take_over
from statemachine.events import RestoreRefused, SandboxRestored
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from actors.steps.stage import Stage
    from statemachine.commands import RestoreSandbox


async def restore_sandbox(stage: Stage, command: RestoreSandbox) -> SandboxRestored | RestoreRefused:
    """Perform RestoreSandbox."""
    try:
        directory, manifest = await judge(stage, command.snapshot.uri)
        await require_known_driver(stage, step=Step.RESTORE)
        await verify(stage.ports.files, directory, manifest)
    except ProblemError as error:
        return RestoreRefused(problem=error.problem)
    await stage.mark(Step.RESTORE, "SnapshotVerified")
    plan = await bundles_of(stage, take_over(stage, manifest), step=Step.RESTORE)
    stage.shapes |= {each.name: each.shape for each in manifest.containers if each.name in stage.exited}
    stage.sandbox = await start_restored(driver(stage), plan, directory)
    return SandboxRestored()
