"""The snapshot that an activation is to come from, judged before anything is made of it.

Restore does it; so does inject before it, because what is in a container's config.json depends on what the snapshot
says it had. Both find the same: nothing of a snapshot changes. What is found is the restore's problem in either case.
What each container would be is worked out for it, as far as it can be before anything is written: of one with a grant
its bundle before any device, and what today's CDI spec could give it; once inject has been, all of it.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import attrs
import structlog

from actors.compatibility import ContainerHere, Force, Here, Injected, differences, refusal
from actors.gpu.desk import KeptSpec
from actors.gpu.granted_edits import granted_edits
from actors.gpu.identity_file import IDENTITY_PATH
from actors.gpu.links import PRIVATE_DIRECTORY
from actors.manifest import read_manifest, shape_of
from actors.snapshots import directory_of
from actors.steps.bundles import flags_of, pristine_configs
from statemachine.actor import OnDifference
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.assignment import Container
    from actors.compatibility import Difference
    from actors.gpu.inventory import Gpu
    from actors.manifest import Manifest, Shape
    from actors.steps.stage import Stage

_log = structlog.get_logger("greenroom.restore")


@attrs.frozen(kw_only=True)
class Origin:
    """A snapshot that may be restored.

    Attributes:
        directory: where it is.
        manifest: what it says.
    """

    directory: Path
    manifest: Manifest


async def judge(stage: Stage, uri: str, on_difference: OnDifference) -> Origin:
    """The snapshot, when nothing that its manifest says speaks against a restore here; what was forced is noted.

    The files are not looked at, which takes as long as they are large.

    Args:
        stage: the actor's.
        uri: of the snapshot.
        on_difference: whether what can be passed over is.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, SnapshotIncompatible, BundleChanged, MountMissing;
            InvalidBundle, BundleNotFound, RootfsNotFound, CdiDeviceUnresolved, MigUnsupported.
    """
    directory = directory_of(uri)
    manifest = await read_manifest(stage.ports.files, directory)
    found = await verdict(stage, manifest)
    if any(on_difference is OnDifference.REFUSE or each.force is Force.NEVER for each in found):
        raise ProblemError(refusal(found))
    stage.forced = found
    return Origin(directory=directory, manifest=manifest)


async def verdict(stage: Stage, manifest: Manifest) -> tuple[Difference, ...]:
    """Everything that differs from the snapshot on this stage; nothing is written.

    Raises:
        ProblemError: InvalidBundle, BundleNotFound, RootfsNotFound, CdiDeviceUnresolved, MigUnsupported: a container
            cannot be made here at all.
    """
    return differences(manifest, await _here(stage, manifest))


async def tell_forced(stage: Stage) -> None:
    """Journal and log what somebody wanted to be passed over."""
    for each in stage.forced:
        await stage.mark(Step.RESTORE, f"Forced {each.subject}")
        _log.warning("forced", actor=stage.assignment.uid, subject=each.subject, was=each.was, here=each.now)


def take_over(stage: Stage, manifest: Manifest) -> list[Container]:
    """The containers that live in the snapshot, all where it has no image; that the others have exited is noted."""
    stage.exited = dict(manifest.exited)
    return [each for each in stage.assignment.containers if each.name not in stage.exited]


async def _here(stage: Stage, manifest: Manifest) -> Here:
    runtime = stage.runtime
    return Here(
        runtime=runtime.version,
        runsc_sha256=runtime.sha256,
        flags=flags_of(stage),
        arch=runtime.machine,
        cpu_features=runtime.cpu_features,
        driver=stage.spec.driver if stage.spec else None,
        containers=await _containers(stage, manifest),
        volumes=stage.assignment.durable_volumes,
    )


async def _containers(stage: Stage, manifest: Manifest) -> list[ContainerHere]:
    saved = frozenset(manifest.restorable)
    restorable = [each for each in stage.assignment.containers if each.name in saved]
    planned = () if stage.plan is None else stage.plan.names
    whole = {each.name: stage.shapes[each.name] for each in restorable if each.name in planned}
    unplanned = [each for each in restorable if each.name not in planned]
    bare = await _before_any_device(stage, unplanned) if unplanned else {}
    granted = {each.name: stage.granted.get(each.name, ()) for each in stage.assignment.containers}
    return [
        ContainerHere(
            name=each.name,
            image_digest=each.image_digest,
            shape=whole.get(each.name, bare.get(each.name)),
            injected=_to_be_injected(stage, granted[each.name]) if each.name in bare else None,
            gpus=granted[each.name],
        )
        for each in stage.assignment.containers
    ]


async def _before_any_device(stage: Stage, containers: Sequence[Container]) -> dict[str, Shape]:
    try:
        composed = await pristine_configs(stage, containers)
    except ProblemError as error:
        raise ProblemError(*(attrs.evolve(each, step=Step.RESTORE) for each in error.problems)) from error
    return {name: shape_of(pristine) for name, pristine in composed.items()}


def _to_be_injected(stage: Stage, gpus: tuple[Gpu, ...]) -> Injected | None:
    """What inject may put into a container: of one without a grant nothing, without a spec nobody knows what.

    Raises:
        ProblemError: CdiDeviceUnresolved, MigUnsupported.
    """
    if not gpus:
        return None
    if not isinstance(stage.spec, KeptSpec):
        return Injected()
    edits = granted_edits(stage.spec.spec, gpus)
    nodes = (node.path for node in edits.device_nodes)
    mounts = (posixpath.normpath(mount.container_path) for mount in edits.mounts)
    return Injected(paths=frozenset({*nodes, *mounts, IDENTITY_PATH, PRIVATE_DIRECTORY}))
