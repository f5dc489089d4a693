"""The manifest of a stored snapshot: the one that the snapshot has on the worker, and in which chunks its files lie.

    {"v": 1, …, "chunks": {"pages.img": [{"size": 67108864, "blake3": "…"}, …], …}}

What stands in a store was written by whoever can write there. So nothing of it is believed that does not fit: every
file has its chunks, they make up just its size, and none is larger than a chunk is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from actors.codec import epoch_s
from actors.manifest import MANIFEST_BYTES_MAX, as_json, parse_manifest
from actors.ports import OBJECTS_MAX, FilePart
from actors.strict_json import StrictJsonError, canonical, parse_object, type_name
from statemachine.actor import Snapshot
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actors.manifest import Manifest, SnapshotFile
    from actors.stores.places import SnapshotPlace

CHUNK_BYTES: Final = 64 << 20
STORED_MANIFEST_BYTES_MAX: Final = MANIFEST_BYTES_MAX
_CHUNKS_MAX: Final = OBJECTS_MAX
_MEMBER: Final = "chunks"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@attrs.frozen(kw_only=True)
class ChunkedFile:
    """A file of a stored snapshot and its chunks, in order."""

    file: SnapshotFile
    chunks: tuple[FilePart, ...]


@attrs.frozen(kw_only=True)
class StoredSnapshot:
    """A snapshot that has a manifest in a store.

    Attributes:
        place: where it lies.
        manifest: as it was on the worker.
        files: every file, in the manifest's order.
    """

    place: SnapshotPlace
    manifest: Manifest
    files: tuple[ChunkedFile, ...]

    @property
    def uri(self) -> str:
        """Its URI."""
        return str(self.place)

    @property
    def size_bytes(self) -> int:
        """What its files have together."""
        return self.manifest.size_bytes

    @property
    def chunks(self) -> dict[str, int]:
        """The size of every chunk by its BLAKE3; equal ones once."""
        return {chunk.blake3: chunk.size_bytes for each in self.files for chunk in each.chunks}

    @property
    def snapshot(self) -> Snapshot:
        """What the machine remembers of it."""
        return Snapshot(
            id=self.manifest.id,
            uri=self.uri,
            created_at=epoch_s(self.manifest.created_at),
            exited=self.manifest.exited,
        )


def stored_as_bytes(stored: StoredSnapshot) -> bytes:
    """The manifest of a stored snapshot, as it lies in the store."""
    chunks = {
        each.file.name: [{"size": chunk.size_bytes, "blake3": chunk.blake3} for chunk in each.chunks]
        for each in stored.files
    }
    return canonical({**as_json(stored.manifest), _MEMBER: chunks})


def parse_stored(data: bytes, place: SnapshotPlace, *, step: Step) -> StoredSnapshot | None:
    """Read the manifest of a stored snapshot; None when it is one of a snapshot on a worker.

    Raises:
        ProblemError: NewerFormat, SnapshotCorrupt.
    """
    manifest = parse_manifest(data, path=f"{place}/manifest.json", step=step)
    try:
        document = parse_object(data)
        if _MEMBER not in document:
            return None
        _check_name(manifest, place)
        files = tuple(_chunked(manifest, document[_MEMBER]))
    except (StrictJsonError, _FaultError) as error:
        raise ProblemError(corrupt(str(place), f"the manifest of snapshot {place} {error}", step=step)) from error
    return StoredSnapshot(place=place, manifest=manifest, files=files)


def corrupt(subject: str, message: str, *, step: Step) -> Problem:
    """The problem of a snapshot that cannot be believed."""
    return Problem(step=step, reason=Reason.SNAPSHOT_CORRUPT, subject=subject, message=message)


class _FaultError(Exception):
    """Raised for what does not fit."""


def _check_name(manifest: Manifest, place: SnapshotPlace) -> None:
    if (manifest.actor, manifest.id) != (place.uid, place.id):
        raise _FaultError(f"says that it is snapshot {manifest.id} of actor {manifest.actor}")


def _chunked(manifest: Manifest, document: object) -> Iterator[ChunkedFile]:
    by_name = {name: _array(each, name) for name, each in _object(document, "chunks").items()}
    if by_name.keys() != {file.name for file in manifest.files}:
        raise _FaultError("has not the chunks of just its files")
    if sum(len(each) for each in by_name.values()) > _CHUNKS_MAX:
        raise _FaultError(f"has more than {_CHUNKS_MAX} chunks")
    sizes: dict[str, int] = {}
    for file in manifest.files:
        chunks = tuple(_chunk(each, file) for each in by_name[file.name])
        if sum(chunk.size_bytes for chunk in chunks) != file.size_bytes:
            raise _FaultError(f"has chunks of {file.name} that do not make up its {file.size_bytes} bytes")
        for chunk in chunks:
            if sizes.setdefault(chunk.blake3, chunk.size_bytes) != chunk.size_bytes:
                raise _FaultError(f"has chunk {chunk.blake3} in two sizes")
        yield ChunkedFile(file=file, chunks=chunks)


def _chunk(document: object, file: SnapshotFile) -> FilePart:
    members = _object(document, f"a chunk of {file.name}")
    size_bytes, blake3 = members.get("size"), members.get("blake3")
    if type(size_bytes) is not int or not 0 < size_bytes <= CHUNK_BYTES:
        raise _FaultError(f"has a chunk of {file.name} with a size that no chunk has: {size_bytes!r:.60}")
    if not isinstance(blake3, str) or not _DIGEST.fullmatch(blake3):
        raise _FaultError(f"has a chunk of {file.name} without a BLAKE3: {blake3!r:.60}")
    return FilePart(size_bytes=size_bytes, blake3=blake3)


def _object(document: object, what: str) -> Mapping[str, object]:
    if not isinstance(document, dict):
        raise _FaultError(f"has for {what} no object, but {type_name(document)}")
    return document


def _array(document: object, what: str) -> Sequence[object]:
    if not isinstance(document, list):
        raise _FaultError(f"has for the chunks of {what} no array, but {type_name(document)}")
    return document
