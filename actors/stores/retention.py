"""Which snapshots of an actor stay in a store, by count.

The one that was just proven always does, and nothing at all is removed before it was seen to be whole in the store.
A manifest goes first, then the chunks that no manifest names any more: what is left at any moment is whole snapshots
and chunks of nobody, which go the next time. Where a manifest cannot be read (damaged, or of a newer format), nobody
knows which chunks it names: all stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.manifest import MANIFEST_NAME
from actors.snapshots import is_snapshot_id
from actors.stores.asking import ASK_S, answering
from actors.stores.format import StoredSnapshot
from actors.stores.looking import check_sizes, read_at
from actors.stores.places import CHUNKS_NAME, ActorPlace, SnapshotPlace, actor_place
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.ports import SnapshotStore, Stores

KEPT_IN_STORE: Final = 2
"""Snapshots of an actor that stay in a store: the newest, and the one before it."""


@attrs.frozen(kw_only=True)
class Pruned:
    """What was removed.

    Attributes:
        snapshots: URIs of snapshots, oldest first.
        chunks: how many chunks.
        unread: URIs of what cannot be read, on whose account all chunks stayed.
    """

    snapshots: tuple[str, ...]
    chunks: int
    unread: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Found:
    """What of an actor lies in a store.

    Attributes:
        snapshots: those with a manifest that can be read.
        unread: ids of those with one that cannot.
        sizes: of every chunk, by its BLAKE3.
    """

    snapshots: tuple[StoredSnapshot, ...]
    unread: tuple[str, ...]
    sizes: dict[str, int]

    def is_whole(self, snapshot: StoredSnapshot) -> bool:
        """Whether every chunk of a snapshot is there."""
        return all(self.sizes.get(blake3) == size_bytes for blake3, size_bytes in snapshot.chunks.items())


def removable(found: Found, *, proven: str, kept: int) -> tuple[StoredSnapshot, ...]:
    """The snapshots that are too many, oldest first: all but the proven one and the kept - 1 newest others.

    Only whole ones count, and only such are removed: what is damaged stays for whoever wants to know why. So does what
    is not called as one of ours.
    """
    others = [
        each
        for each in found.snapshots
        if each.place.id != proven and is_snapshot_id(each.place.id) and found.is_whole(each)
    ]
    others.sort(key=lambda each: (each.snapshot.created_at, each.place.id))
    return tuple(others[: max(0, len(others) - max(0, kept - 1))])


def nobodys_chunks(found: Found) -> tuple[str, ...]:
    """The chunks that no manifest names; none where one cannot be read."""
    if found.unread:
        return ()
    named = {blake3 for each in found.snapshots for blake3 in each.chunks}
    return tuple(sorted(set(found.sizes) - named))


async def prune_stored(
    stores: Stores, uri: str, *, proven: str, kept: int = KEPT_IN_STORE, step: Step = Step.SUSPEND
) -> Pruned:
    """Remove what is too old of an actor's snapshots in a store, `<store>/<uid>`. It can be cut off at any moment.

    No upload of the same actor may run meanwhile: its chunks are nobody's until its manifest is there.

    Args:
        stores: the port.
        uri: where the snapshots of the actor lie.
        proven: the id of the one that is known to be good, and stays.
        kept: how many stay, at least 1.
        step: the step that problems belong to.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat when the proven one is not whole there; nothing was
            removed then. StoreUnreachable, after which some of it may be removed.
    """
    actor = actor_place(uri, step=step)
    store = actor.open(stores)
    good = await read_at(store, SnapshotPlace(actor, proven), step=step)
    found = await _look(store, actor, step)
    check_sizes(good, found.sizes, step=step)
    old = removable(found, proven=proven, kept=kept)
    with answering(uri, step=step):
        for each in old:
            await store.remove(each.place.manifest, deadline_s=ASK_S)
    # Looked at again: a manifest that a store only says to have removed still names its chunks. And what stays is known
    # from the first look too: one listing or one reading that was wrong costs no chunk.
    after = await _look(store, actor, step)
    staying = (good, *(each for each in found.snapshots if each not in old), *after.snapshots)
    chunks = nobodys_chunks(attrs.evolve(after, snapshots=staying, unread=(*found.unread, *after.unread)))
    with answering(uri, step=step):
        for blake3 in chunks:
            await store.remove(actor.chunk(blake3), deadline_s=ASK_S)
    left = {each.place.id for each in after.snapshots}
    return Pruned(
        snapshots=tuple(each.uri for each in old if each.place.id not in left),
        chunks=len(chunks),
        unread=tuple(str(SnapshotPlace(actor, name)) for name in after.unread),
    )


async def _look(store: SnapshotStore, actor: ActorPlace, step: Step) -> Found:
    with answering(str(actor.uri), step=step):
        listed = await store.list("", deadline_s=ASK_S)
    sizes: dict[str, int] = {}
    names: list[str] = []
    for each in listed:
        match each.key.split("/"):
            case [name, last] if name == CHUNKS_NAME:
                sizes[last] = each.size_bytes
            case [name, last] if last == MANIFEST_NAME:
                names.append(name)
            case _:
                pass  # not ours
    return await _read_all(store, actor, names, sizes, step)


async def _read_all(
    store: SnapshotStore, actor: ActorPlace, names: Iterable[str], sizes: dict[str, int], step: Step
) -> Found:
    snapshots: list[StoredSnapshot] = []
    unread: list[str] = []
    for name in names:
        try:
            snapshots.append(await read_at(store, SnapshotPlace(actor, name), step=step))
        except ProblemError as error:
            if error.problem.reason is Reason.STORE_UNREACHABLE:
                raise
            unread.append(name)
    return Found(snapshots=tuple(snapshots), unread=tuple(unread), sizes=sizes)
