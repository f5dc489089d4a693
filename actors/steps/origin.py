"""The snapshot that an activation is to come from, judged before anything is made of it.

Restore does it; so does inject before it, because what is in a container's config.json depends on what the snapshot
says it had. Both find the same: nothing of a snapshot changes. What is found is the restore's problem in either case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.compatibility import compatibility, gpu_compatibility
from actors.manifest import read_manifest
from actors.snapshots import directory_of
from actors.steps.bundles import flags_of
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.assignment import Container
    from actors.manifest import Manifest
    from actors.steps.stage import Stage


async def judge(stage: Stage, uri: str) -> tuple[Path, Manifest]:
    """The snapshot's directory and manifest, when nothing that the manifest says speaks against a restore here.

    The files are not looked at, which takes as long as they are large.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, SnapshotIncompatible, BundleChanged.
    """
    directory = directory_of(uri)
    manifest = await read_manifest(stage.ports.files, directory)
    verdict = compatibility(
        manifest,
        runtime=stage.runtime.version,
        flags=flags_of(stage),
        arch=stage.runtime.machine,
        containers=[each.name for each in stage.assignment.containers],
    ) or gpu_compatibility(manifest, gpus=stage.granted, driver=stage.spec.driver if stage.spec else None)
    if verdict is not None:
        raise ProblemError(verdict)
    changed = list(_changed_images(stage, manifest))
    if changed:
        raise ProblemError(*changed)
    return directory, manifest


def take_over(stage: Stage, manifest: Manifest) -> list[Container]:
    """The containers that live in the snapshot; that the others have exited is noted."""
    stage.exited = {each.name: each.exited for each in manifest.containers if each.exited is not None}
    return [each for each in stage.assignment.containers if each.name not in stage.exited]


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
