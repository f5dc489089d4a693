"""restore: the snapshot is judged and verified before anything is touched, then sandbox and containers are restored.

Needs the snapshot. Makes what create makes. Refuses (nothing was created): SnapshotMissing, SnapshotCorrupt,
NewerFormat, SnapshotIncompatible, BundleChanged. It is done when every runsc call has ended with 0; that the actor
lives and serves is for verify to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.compatibility import compatibility
from actors.manifest import read_manifest
from actors.proof import verify
from actors.runsc.activation import start_restored
from actors.snapshots import directory_of
from actors.steps.create import driver, prepare
from statemachine.events import RestoreRefused, SandboxRestored
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.manifest import Manifest
    from actors.steps.stage import Stage
    from statemachine.commands import RestoreSandbox


async def restore_sandbox(stage: Stage, command: RestoreSandbox) -> SandboxRestored | RestoreRefused:
    """Perform RestoreSandbox."""
    try:
        directory, manifest = await _judge(stage, command.snapshot.uri)
    except ProblemError as error:
        return RestoreRefused(problem=error.problem)
    await stage.mark(Step.RESTORE, "SnapshotVerified")
    stage.exited = {each.name: each.exited for each in manifest.containers if each.exited is not None}
    wanted = [each for each in stage.assignment.containers if each.name not in stage.exited]
    plan = await prepare(stage, wanted, step=Step.RESTORE)
    stage.shapes |= {each.name: each.shape for each in manifest.containers if each.name in stage.exited}
    stage.sandbox = await start_restored(driver(stage), plan, directory)
    return SandboxRestored()


async def _judge(stage: Stage, uri: str) -> tuple[Path, Manifest]:
    """Everything that can speak against a restore, before anything is created.

    Raises:
        ProblemError: the first thing that does.
    """
    files = stage.ports.files
    directory = directory_of(uri)
    manifest = await read_manifest(files, directory)
    verdict = compatibility(
        manifest,
        runtime=stage.runtime.version,
        flags=stage.runtime.flags,
        arch=stage.runtime.machine,
        containers=[each.name for each in stage.assignment.containers],
    )
    if verdict is not None:
        raise ProblemError(verdict)
    changed = list(_changed_images(stage, manifest))
    if changed:
        raise ProblemError(*changed)
    await verify(files, directory, manifest)
    return directory, manifest


def _changed_images(stage: Stage, manifest: Manifest) -> Iterator[Problem]:
    """Containers whose imageDigest is named on both sides and differs."""
    saved = {each.name: each.image_digest for each in manifest.containers}
    for each in stage.assignment.containers:
        before = saved.get(each.name)
        if before and each.image_digest and before != each.image_digest:
            yield Problem(
                step=Step.RESTORE,
                reason=Reason.BUNDLE_CHANGED,
                subject=each.name,
                message=f"container {each.name} has image {each.image_digest}; the snapshot was taken of {before}",
            )
