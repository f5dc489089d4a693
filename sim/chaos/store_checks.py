"""Stores: what is said to be there is there, and what is there can be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blake3 import blake3

from actors.manifest import MANIFEST_NAME
from actors.stores.format import parse_stored
from actors.stores.places import snapshot_place
from sim.invariants.evidence import actors_in
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.stores.format import StoredSnapshot
    from actors.stores.places import SnapshotPlace
    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World

_LAST: Final = f"/{MANIFEST_NAME}"


def stored_is_there(world: World, _record: Record) -> Iterator[Finding]:
    """Who tells that its snapshot is in a store has a manifest there; of every manifest in a store each chunk is there.

    A manifest that cannot be read is no snapshot, as long as nobody tells of it. The subject is the object that is
    wrong.
    """
    told = {f"{uri}{_LAST}": uid for uid, uri in _told(world)}
    for name in sorted(told.keys() - world.objects.content.keys()):
        yield name, f"{told[name]} tells that its snapshot is there, and it is not"
    for name, data in world.objects.content.items():
        if not name.endswith(_LAST):
            continue
        stored = _read(snapshot_place(name.removesuffix(_LAST), step=Step.SUSPEND), data)
        if stored is not None:
            yield from _wrong_chunks(world, stored)
        elif name in told:
            yield name, f"{told[name]} tells that its snapshot is there, and it cannot be read"


def _told(world: World) -> Iterator[tuple[str, str]]:
    for each in actors_in(world):
        good = None if each.actor is None else each.actor.last_good
        if good is not None and good.stored_uri is not None:
            yield each.uid, good.stored_uri


def _read(place: SnapshotPlace, data: bytes) -> StoredSnapshot | None:
    try:
        return parse_stored(data, place, step=Step.SUSPEND)
    except ProblemError:
        return None


def _wrong_chunks(world: World, stored: StoredSnapshot) -> Iterator[Finding]:
    for digest, size_bytes in stored.chunks.items():
        name = str(stored.place.actor.uri.below(*stored.place.actor.chunk(digest).split("/")))
        data = world.objects.content.get(name)
        if data is None:
            yield name, f"is named by {stored.uri}, and is not there"
        elif len(data) != size_bytes or blake3(data).hexdigest() != digest:
            yield name, f"is named by {stored.uri}, and is not what its name says"
