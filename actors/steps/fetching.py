"""The files of the snapshot that an activation is to come from, fetched from its store where they are only there.

The step that needs them first does it, before anything of the activation is made: inject where GPUs are claimed, else
restore. What was fetched is an ordinary snapshot of the actor's here; one that is here already is not fetched again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from actors import snapshots
from actors.manifest import MANIFEST_NAME
from actors.stores import download
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.steps.stage import Stage
    from statemachine.actor import Snapshot

_CLEANUP_S: Final = 30.0
_DAMAGED: Final = frozenset({Reason.SNAPSHOT_CORRUPT, Reason.SNAPSHOT_MISSING})


async def fetched(stage: Stage, snapshot: Snapshot) -> str:
    """The `file:` URI of a snapshot's directory, once all of it is there.

    Whoever is cut off in the middle leaves nothing of it.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, InsufficientDisk, StateUnwritable,
            StoreUnreachable.
    """
    if not snapshot.is_elsewhere:
        return snapshot.uri
    directory = _directory(stage, snapshot)
    if not await _is_here(stage, directory):
        await stage.mark(Step.RESTORE, "Fetching")
        try:
            await download(stage.ports.files, stage.ports.stores, snapshot.uri, directory)
        except BaseException:
            with anyio.move_on_after(_CLEANUP_S, shield=True), suppress(OSError):
                await snapshots.remove(stage.ports.files, directory)
            raise
        await stage.mark(Step.RESTORE, "Fetched")
    return snapshots.uri_of(directory)


async def drop_damaged_copy(stage: Stage, snapshot: Snapshot, found: Problem) -> None:
    """Remove what was fetched and is damaged, so that it is fetched again when it is next wanted."""
    if not snapshot.is_elsewhere or found.reason not in _DAMAGED:
        return
    with anyio.CancelScope(shield=True), suppress(OSError, ProblemError):
        await snapshots.remove(stage.ports.files, _directory(stage, snapshot))


def _directory(stage: Stage, snapshot: Snapshot) -> Path:
    """Where it is to be.

    Raises:
        ProblemError: SnapshotCorrupt for a name that is no snapshot's, which would lead anywhere.
    """
    if not snapshots.is_snapshot_id(snapshot.id):
        raise ProblemError(
            Problem(
                step=Step.RESTORE,
                reason=Reason.SNAPSHOT_CORRUPT,
                subject=snapshot.uri,
                message=f"the snapshot at {snapshot.uri} is called {snapshot.id!r}, which no snapshot is",
            )
        )
    return stage.directory.snapshot(snapshot.id)


async def _is_here(stage: Stage, directory: Path) -> bool:
    try:
        return await stage.ports.files.lstat(directory / MANIFEST_NAME) is not None
    except OSError:
        return False
