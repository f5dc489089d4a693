"""Snapshots: whole as soon as they can be seen, and never lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blake3 import blake3

from actors.codec import epoch_s
from actors.snapshots import uri_of
from sim.invariants.evidence import actors_in, bytes_at, snapshots_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.evidence import ActorOnDisk, SnapshotOnDisk
    from sim.invariants.violation import Finding
    from sim.world.world import World


def snapshots_are_whole(world: World, _record: Record) -> Iterator[Finding]:
    """Where a manifest is, every file is what it says, and nothing is missing that runsc needs."""
    for each in actors_in(world):
        for snapshot in snapshots_of(world, each.uid):
            for what in faults_of(world, snapshot):
                yield str(snapshot.directory), what


def last_good_is_kept(world: World, record: Record) -> Iterator[Finding]:
    """A snapshot that was once named good is there and whole, or a newer one is."""
    proven = {move.actor for move in record.moves if move.event == "SnapshotProven"}
    for each in actors_in(world):
        whole = {
            uri_of(snapshot.directory): epoch_s(snapshot.manifest.created_at)
            for snapshot in snapshots_of(world, each.uid)
            if snapshot.manifest is not None and not any(faults_of(world, snapshot))
        }
        if each.uid in proven and not whole:
            yield each.uid, "a snapshot was proven, and there is none any more"
        for snapshot_id, uri, created_s in _named(each):
            is_here = uri.startswith(uri_of(each.directory.snapshots))
            if is_here and uri not in whole and not any(newer_s > created_s for newer_s in whole.values()):
                yield each.uid, f"snapshot {snapshot_id} was named good, and neither it nor a newer one is whole"


def _named(each: ActorOnDisk) -> Iterator[tuple[str, str, float]]:
    """Every snapshot that the journal has named good: id, URI, and when it was made."""
    for line in each.lines():
        for found in (line.get("base", {}).get("lastGood"), _proven(line)):
            if found is not None:
                yield found["id"], found["uri"], float(found["createdAt"])
    if each.actor is not None and each.actor.last_good is not None:
        good = each.actor.last_good
        yield good.id, good.uri, good.created_at


def _proven(line: dict[str, Any]) -> Any:
    event = line.get("event") or {}
    return event.get("snapshot") if event.get("type") == "SnapshotProven" else None


def faults_of(world: World, snapshot: SnapshotOnDisk) -> Iterator[str]:
    """What is wrong with a snapshot that can be seen."""
    if snapshot.fault is not None:
        yield snapshot.fault
    if snapshot.manifest is None:
        return
    manifest = snapshot.manifest
    if manifest.id != snapshot.directory.name:
        yield f"its manifest is that of {manifest.id}"
    yield from (
        f"its manifest names no {name}"
        for name in manifest.demanded
        if name not in {file.name for file in manifest.files}
    )
    for file in manifest.files:
        data = bytes_at(world, snapshot.directory / file.name)
        if data is None:
            yield f"{file.name} is missing"
        elif len(data) != file.size_bytes or blake3(data).hexdigest() != file.blake3:
            yield f"{file.name} is not what its manifest says"
