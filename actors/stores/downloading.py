"""Fetching a snapshot from a store into a directory of the worker, where it is then an ordinary one.

Nothing that the store says is believed before it was seen: names are plain names, sizes fit into what is free, every
chunk has the content that it is named after, and every file in the end the one that its manifest names.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from actors import snapshots
from actors.concurrency import together
from actors.manifest import write_manifest
from actors.ports import StoreError
from actors.proof import unwritten, verify
from actors.stores.asking import CHUNK_S, CHUNKS_AT_ONCE, refused
from actors.stores.format import corrupt
from actors.stores.looking import check_sizes, chunk_sizes, read_at
from actors.stores.places import snapshot_place
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.manifest import Manifest
    from actors.ports import FilePart, Files, SnapshotStore, Stores
    from actors.stores.format import StoredSnapshot


@attrs.frozen(kw_only=True)
class _Wanted:
    """A chunk and its place in a file."""

    path: Path
    offset_bytes: int
    chunk: FilePart


async def download(files: Files, stores: Stores, uri: str, directory: Path, *, step: Step = Step.RESTORE) -> Manifest:
    """Fetch the snapshot that a URI names into a directory, of which whatever is there is removed before.

    Who is cut off leaves a directory without a manifest, which is no snapshot.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, StoreUnreachable, NotSupported; InsufficientDisk,
            StateUnwritable.
    """
    place = snapshot_place(uri, step=step)
    store = place.actor.open(stores)
    stored = await read_at(store, place, step=step)
    check_sizes(stored, await chunk_sizes(store, place, step=step), step=step)
    try:
        await _make_room(files, stored, directory, step)
        await _fetch(files, store, stored, directory, step)
        await together(
            partial(files.sync_tree, directory), partial(verify, files, directory, stored.manifest, step=step)
        )
        await write_manifest(files, directory, stored.manifest)
    except OSError as error:
        raise ProblemError(_unwritable(stored, directory, error, step)) from error
    return stored.manifest


async def _make_room(files: Files, stored: StoredSnapshot, directory: Path, step: Step) -> None:
    await snapshots.remove(files, directory)
    await files.make_directory(directory)
    free_bytes = await files.free_bytes(directory)
    if stored.size_bytes > free_bytes:
        message = f"{stored.uri} has {stored.size_bytes} bytes, and {free_bytes} are free in {directory}"
        raise ProblemError(Problem(step=step, reason=Reason.INSUFFICIENT_DISK, subject=str(directory), message=message))


async def _fetch(files: Files, store: SnapshotStore, stored: StoredSnapshot, directory: Path, step: Step) -> None:
    left = _wanted(stored, directory)

    async def fetch_chunks() -> None:
        for wanted in left:
            await _fetch_chunk(store, stored, wanted, step)

    for each in stored.files:
        # Every file is there, those too that have no chunk.
        await files.append(directory / each.file.name, b"")
    try:
        await together(*[fetch_chunks] * CHUNKS_AT_ONCE)
    except StoreError as error:
        raise ProblemError(refused(stored.uri, error, step=step, reason=Reason.STORE_UNREACHABLE)) from error


def _wanted(stored: StoredSnapshot, directory: Path) -> Iterator[_Wanted]:
    for each in stored.files:
        offset_bytes = 0
        for chunk in each.chunks:
            yield _Wanted(path=directory / each.file.name, offset_bytes=offset_bytes, chunk=chunk)
            offset_bytes += chunk.size_bytes


async def _fetch_chunk(store: SnapshotStore, stored: StoredSnapshot, wanted: _Wanted, step: Step) -> None:
    chunk, path = wanted.chunk, wanted.path
    try:
        found = await store.get_into(
            stored.place.actor.chunk(chunk.blake3),
            path,
            offset_bytes=wanted.offset_bytes,
            size_bytes=chunk.size_bytes,
            deadline_s=CHUNK_S,
        )
    except FileNotFoundError as error:
        message = f"{stored.uri}: chunk {chunk.blake3} of {path.name} has gone"
        raise ProblemError(corrupt(stored.uri, message, step=step)) from error
    if found != chunk.blake3:
        message = f"{stored.uri}: a chunk of {path.name} has BLAKE3 {found}, and is named {chunk.blake3}"
        raise ProblemError(corrupt(stored.uri, message, step=step))


def _unwritable(stored: StoredSnapshot, directory: Path, error: OSError, step: Step) -> Problem:
    message = f"{stored.uri} cannot be fetched into {directory}: {error.strerror or error}"
    return Problem(step=step, reason=unwritten(error), subject=str(directory), message=message)
