"""Bringing a snapshot of the worker into a store: chunks first, then a look whether all are there, the manifest last.

A chunk is named after its content. So what is there already is not sent again, whichever snapshot brought it, and an
upload that was cut off goes on where it was. Until its manifest is there, nobody takes it for a snapshot.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from actors.concurrency import together
from actors.manifest import read_manifest
from actors.ports import StoreError, TooLargeError
from actors.stores.asking import ASK_S, CHUNK_S, CHUNKS_AT_ONCE, answering
from actors.stores.format import (
    CHUNK_BYTES,
    STORED_MANIFEST_BYTES_MAX,
    ChunkedFile,
    StoredSnapshot,
    corrupt,
    stored_as_bytes,
)
from actors.stores.looking import chunk_sizes
from actors.stores.places import snapshot_place
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from actors.manifest import SnapshotFile
    from actors.ports import Files, SnapshotStore, Stores
    from actors.stores.places import SnapshotPlace

_NOT_UPLOADED = Reason.SNAPSHOT_NOT_UPLOADED


@attrs.define(kw_only=True)
class Cut:
    """What one try to upload a snapshot leaves to the next: its files, read whole and cut into chunks.

    Attributes:
        stored: None while no try has failed on the store's account alone.
    """

    stored: StoredSnapshot | None = None


class _ChangedError(ProblemError):
    """Raised for a file that is not what it was when it was cut."""


async def upload(
    files: Files,
    stores: Stores,
    directory: Path,
    uri: str,
    *,
    step: Step = Step.SUSPEND,
    chunk_bytes: int = CHUNK_BYTES,
    cut: Cut | None = None,
) -> StoredSnapshot:
    """Bring the snapshot in a directory to a URI; one that is there already is left as it is.

    It can be cut off at any moment and begun again. `prune_stored` of the same actor must not run at the same time.

    Args:
        files: the port.
        stores: the port.
        directory: the snapshot's.
        uri: where it is to be.
        step: the step that problems belong to.
        chunk_bytes: of every chunk but a file's last.
        cut: what an earlier try has left, and this one leaves to the next.

    Raises:
        ProblemError: SnapshotNotUploaded with what the store said; SnapshotMissing, SnapshotCorrupt, NewerFormat when
            the snapshot in the directory is not what its manifest says; NotSupported for another URI.
    """
    place = snapshot_place(uri, step=step)
    store, cut = place.actor.open(stores), cut or Cut()
    stored, cut.stored = cut.stored, None
    if stored is None or stored.place != place:
        stored = await _cut(files, directory, place, chunk_bytes, step)
    data = stored_as_bytes(stored)
    if len(data) > STORED_MANIFEST_BYTES_MAX:
        raise ProblemError(_not_uploaded(stored, "its manifest would be too large", step))
    try:
        await _send_missing(stored, store, directory, step)
        await _check_all_there(stored, store, step)
        await _put_manifest(stored, store, data, step)
    except ProblemError as error:
        if isinstance(error.__cause__, StoreError):  # which says nothing about the files
            cut.stored = stored
        raise
    return stored


async def _cut(files: Files, directory: Path, place: SnapshotPlace, chunk_bytes: int, step: Step) -> StoredSnapshot:
    manifest = await read_manifest(files, directory, step=step)
    chunked = tuple([await _chunked(files, directory, file, chunk_bytes, step) for file in manifest.files])
    return StoredSnapshot(place=place, manifest=manifest, files=chunked)


async def _chunked(files: Files, directory: Path, file: SnapshotFile, chunk_bytes: int, step: Step) -> ChunkedFile:
    """Cut a file, and look whether it is still what was proven: a damaged one must not replace a good one."""
    path = directory / file.name
    try:
        digests = await files.digest_parts(path, part_bytes=chunk_bytes)
    except OSError as error:
        message = f"snapshot {directory.name}: {file.name} cannot be read: {error.strerror or error}"
        raise ProblemError(corrupt(str(path), message, step=step)) from error
    if digests.blake3 != file.blake3 or sum(part.size_bytes for part in digests.parts) != file.size_bytes:
        message = f"snapshot {directory.name}: {file.name} has BLAKE3 {digests.blake3}, the manifest says {file.blake3}"
        raise ProblemError(corrupt(str(path), message, step=step))
    return ChunkedFile(file=file, chunks=digests.parts)


async def _send_missing(stored: StoredSnapshot, store: SnapshotStore, directory: Path, step: Step) -> None:
    there = await chunk_sizes(store, stored.place, step=step, reason=_NOT_UPLOADED)
    left = _missing(stored, there)
    unsure = set[str]()

    async def send_chunks() -> None:
        for name, offset_bytes, blake3, size_bytes in left:
            key, path = stored.place.actor.chunk(blake3), directory / name
            unsure.add(key)
            sent = await store.put_part_of(
                key, path, offset_bytes=offset_bytes, size_bytes=size_bytes, deadline_s=CHUNK_S
            )
            if sent != blake3:  # the next try reads the file anew, and finds out what is wrong with it
                why = f"a chunk of {name} was sent with BLAKE3 {sent}, and had {blake3} when the file was read"
                raise _ChangedError(_not_uploaded(stored, why, step))
            unsure.remove(key)

    try:
        with answering(stored.uri, step=step, reason=_NOT_UPLOADED):
            await together(*[send_chunks] * CHUNKS_AT_ONCE)
    except _ChangedError:
        await _remove(store, unsure)
        raise


async def _remove(store: SnapshotStore, keys: Iterable[str]) -> None:
    """Remove what may not be what it is named after, so that nobody takes it for a chunk that is there."""
    for key in keys:
        with suppress(OSError):
            await store.remove(key, deadline_s=ASK_S)


def _missing(stored: StoredSnapshot, there: dict[str, int]) -> Iterator[tuple[str, int, str, int]]:
    """The name of a file, an offset in it, and BLAKE3 and size of the chunk there: each that is not there, once."""
    seen = {blake3 for blake3, size_bytes in stored.chunks.items() if there.get(blake3) == size_bytes}
    for each in stored.files:
        offset_bytes = 0
        for chunk in each.chunks:
            if chunk.blake3 not in seen:
                seen.add(chunk.blake3)
                yield each.file.name, offset_bytes, chunk.blake3, chunk.size_bytes
            offset_bytes += chunk.size_bytes


async def _check_all_there(stored: StoredSnapshot, store: SnapshotStore, step: Step) -> None:
    """An answer is not a promise: what it was given for is looked for."""
    there = await chunk_sizes(store, stored.place, step=step, reason=_NOT_UPLOADED)
    absent = [blake3 for blake3, size_bytes in stored.chunks.items() if there.get(blake3) != size_bytes]
    if absent:
        why = f"{len(absent)} of {len(stored.chunks)} chunks are not there with their size; the first is {absent[0]}"
        raise ProblemError(_not_uploaded(stored, why, step))


async def _put_manifest(stored: StoredSnapshot, store: SnapshotStore, data: bytes, step: Step) -> None:
    with answering(stored.uri, step=step, reason=_NOT_UPLOADED):
        if await _manifest_there(stored, store, len(data)) == data:
            return
        await store.put(stored.place.manifest, data, deadline_s=ASK_S)
        found = await _manifest_there(stored, store, len(data))
    if found != data:
        raise ProblemError(_not_uploaded(stored, "its manifest is not there as it was put", step))


async def _manifest_there(stored: StoredSnapshot, store: SnapshotStore, limit_bytes: int) -> bytes | None:
    """What stands there; None when nothing does, or something larger."""
    try:
        return await store.get(stored.place.manifest, limit_bytes=limit_bytes, deadline_s=ASK_S)
    except (FileNotFoundError, TooLargeError):
        return None


def _not_uploaded(stored: StoredSnapshot, why: str, step: Step) -> Problem:
    message = f"{stored.uri} did not reach its store: {why}"
    return Problem(step=step, reason=_NOT_UPLOADED, subject=stored.uri, message=message)
