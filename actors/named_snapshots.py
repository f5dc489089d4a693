"""The snapshot that a document names by its URI: a directory here, or one that lies in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors import snapshots
from actors.stores import find_stored, is_stored_uri, verify_chunks
from statemachine.actor import Snapshot
from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from actors.ports import Files, Stores
    from actors.stores import StoredSnapshot
    from statemachine.problem import Step


async def find_named(files: Files, stores: Stores, uri: str, *, step: Step) -> Snapshot:
    """Look at the snapshot that a URI names, and verify it: one in a store by its manifest and the sizes of its parts.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, NotSupported, StoreUnreachable.
    """
    stored = await find_stored(stores, uri, step=step)
    if stored is None:
        return await snapshots.find_snapshot(files, uri, step=step)
    await verify_chunks(stores, stored, step=step)
    return _elsewhere(stored)


async def recall_named(files: Files, stores: Stores, uri: str, *, step: Step) -> Snapshot:
    """The snapshot that an admitted document names. One that cannot be looked at is named all the same.

    A store that may not answer is not asked: fetching it says what is wrong with it.
    """
    if is_stored_uri(uri):
        return Snapshot(id=uri.rstrip("/").rsplit("/", 1)[-1], uri=uri, created_at=0.0, stored_uri=uri)
    try:
        stored = await find_stored(stores, uri, step=step)
        if stored is not None:
            return _elsewhere(stored)
        return await snapshots.look_at_snapshot(files, uri, step=step)
    except ProblemError:
        return Snapshot(id="", uri=uri, created_at=0.0)


def _elsewhere(stored: StoredSnapshot) -> Snapshot:
    return attrs.evolve(stored.snapshot, stored_uri=stored.snapshot.uri)
