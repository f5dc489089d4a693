"""Looking at what lies in a store: one snapshot, whether it is whole, and which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.concurrency import together
from actors.manifest import MANIFEST_NAME
from actors.ports import TooLargeError
from actors.stores.asking import ASK_S, CHUNK_S, CHUNKS_AT_ONCE, answering
from actors.stores.format import STORED_MANIFEST_BYTES_MAX, StoredSnapshot, corrupt, parse_stored
from actors.stores.places import CHUNKS_NAME, SnapshotPlace, is_stored_uri, snapshot_place, store_of
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.ports import SnapshotStore, Stores


@attrs.frozen(kw_only=True)
class Unreadable:
    """What stands where a snapshot's manifest would, and cannot be read: damaged, or of a newer format.

    Attributes:
        uri: where.
        problem: why.
    """

    uri: str
    problem: Problem


async def find_stored(stores: Stores, uri: str, *, step: Step = Step.RESTORE) -> StoredSnapshot | None:
    """Look at the snapshot that a URI names; None when it is a directory of the worker, which is no store's.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, StoreUnreachable; NotSupported for another URI.
    """
    if is_stored_uri(uri):
        return await read_stored(stores, uri, step=step)
    if not uri.startswith("file:"):
        store_of(uri, step=step)
    try:
        place = snapshot_place(uri, step=step)
        data = await _read(place.actor.open(stores), place, step=step)
    except ProblemError:
        return None  # a directory has its own words for what is wrong with it
    return None if data is None else parse_stored(data, place, step=step)


async def read_stored(stores: Stores, uri: str, *, step: Step = Step.RESTORE) -> StoredSnapshot:
    """Look at the manifest of the snapshot in a store that a URI names.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, StoreUnreachable, NotSupported.
    """
    place = snapshot_place(uri, step=step)
    return await read_at(place.actor.open(stores), place, step=step)


async def read_at(store: SnapshotStore, place: SnapshotPlace, *, step: Step) -> StoredSnapshot:
    """As `read_stored`, of a store that is open."""
    data = await _read(store, place, step=step)
    stored = None if data is None else parse_stored(data, place, step=step)
    if stored is None:
        message = f"there is no snapshot at {place}" if data is None else f"what is at {place} was not put there whole"
        raise ProblemError(Problem(step=step, reason=Reason.SNAPSHOT_MISSING, subject=str(place), message=message))
    return stored


async def verify_stored(stores: Stores, uri: str, *, step: Step = Step.RESTORE) -> StoredSnapshot:
    """Look whether every chunk of a stored snapshot is there with its size; nothing is downloaded.

    Raises:
        ProblemError: SnapshotCorrupt once for each file that is not whole; else as `read_stored`.
    """
    stored = await read_stored(stores, uri, step=step)
    await verify_chunks(stores, stored, step=step)
    return stored


async def verify_chunks(stores: Stores, stored: StoredSnapshot, *, step: Step = Step.RESTORE) -> None:
    """As `verify_stored`, of a snapshot whose manifest was read.

    Raises:
        ProblemError: SnapshotCorrupt once for each file that is not whole; StoreUnreachable.
    """
    place = stored.place
    check_sizes(stored, await chunk_sizes(place.actor.open(stores), place, step=step), step=step)


async def verify_stored_deeply(stores: Stores, uri: str, *, step: Step = Step.RESTORE) -> StoredSnapshot:
    """Look besides whether every chunk has the content that it is named after: each is read once.

    Raises:
        ProblemError: as `verify_stored`.
    """
    stored = await verify_stored(stores, uri, step=step)
    store = stored.place.actor.open(stores)
    left, differing = iter(stored.chunks.items()), set[str]()

    async def read_chunks() -> None:
        for blake3, size_bytes in left:
            key = stored.place.actor.chunk(blake3)
            try:
                found = await store.digest(key, size_bytes=size_bytes, deadline_s=CHUNK_S)
            except FileNotFoundError:
                found = ""  # gone since a moment ago
            if found != blake3:
                differing.add(blake3)

    with answering(uri, step=step):
        await together(*[read_chunks] * CHUNKS_AT_ONCE)
    _raise_for(stored, differing, "differ from what they are named after", step=step)
    return stored


async def list_stored(
    stores: Stores, uri: str, *, step: Step = Step.RESTORE
) -> tuple[StoredSnapshot | Unreadable, ...]:
    """Every snapshot below the URI of a store, of an actor in it or of itself; by actor, and oldest first.

    Raises:
        ProblemError: StoreUnreachable, NotSupported.
    """
    base = store_of(uri, step=step)
    with answering(uri, step=step):
        listed = await stores.open(uri).list("", deadline_s=ASK_S)
    found: list[StoredSnapshot | Unreadable] = []
    for each in listed:
        *names, last = each.key.split("/")
        if last != MANIFEST_NAME:
            continue
        try:
            place = snapshot_place(str(base.below(*names)), step=step)
            found.append(await read_at(place.actor.open(stores), place, step=step))
        except ProblemError as error:
            if error.problem.reason is Reason.STORE_UNREACHABLE:
                raise
            if error.problem.reason is not Reason.SNAPSHOT_MISSING:  # gone since, or no snapshot in a store
                found.append(Unreadable(uri=str(base.below(*names)), problem=error.problem))
    return tuple(sorted(found, key=_age))


def _age(each: StoredSnapshot | Unreadable) -> tuple[str, float, str]:
    created_at = each.snapshot.created_at if isinstance(each, StoredSnapshot) else 0.0
    return each.uri.rpartition("/")[0], created_at, each.uri


async def chunk_sizes(
    store: SnapshotStore, place: SnapshotPlace, *, step: Step, reason: Reason = Reason.STORE_UNREACHABLE
) -> dict[str, int]:
    """The sizes of all chunks of an actor that are there, by their BLAKE3.

    Raises:
        ProblemError: the store does not answer.
    """
    with answering(str(place), step=step, reason=reason):
        listed = await store.list(CHUNKS_NAME, deadline_s=ASK_S)
    return {each.key.removeprefix(f"{CHUNKS_NAME}/"): each.size_bytes for each in listed}


def check_sizes(stored: StoredSnapshot, sizes: dict[str, int], *, step: Step) -> None:
    """Compare the chunks that are there with those that a snapshot wants.

    Raises:
        ProblemError: SnapshotCorrupt, once for each file that is not whole.
    """
    absent = {blake3 for blake3, size_bytes in stored.chunks.items() if sizes.get(blake3) != size_bytes}
    _raise_for(stored, absent, "are missing or have another size", step=step)


def _raise_for(stored: StoredSnapshot, faulty: Iterable[str], what: str, *, step: Step) -> None:
    faulty = frozenset(faulty)
    problems = []
    for each in stored.files:
        bad = [chunk.blake3 for chunk in each.chunks if chunk.blake3 in faulty]
        if bad:
            message = f"{each.file.name}: {len(bad)} of {len(each.chunks)} chunks {what}; the first is {bad[0]}"
            problems.append(corrupt(f"{stored.uri}/{each.file.name}", f"{stored.uri}: {message}", step=step))
    if problems:
        raise ProblemError(*problems)


async def _read(store: SnapshotStore, place: SnapshotPlace, *, step: Step) -> bytes | None:
    with answering(str(place), step=step):
        try:
            return await store.get(place.manifest, limit_bytes=STORED_MANIFEST_BYTES_MAX, deadline_s=ASK_S)
        except FileNotFoundError:
            return None
        except TooLargeError as error:
            message = f"the manifest of snapshot {place} is larger than {STORED_MANIFEST_BYTES_MAX >> 20} MiB"
            raise ProblemError(corrupt(str(place), message, step=step)) from error
