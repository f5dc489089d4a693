"""Which snapshots stay, for whatever lies in a store: never is the last good one removed."""

from __future__ import annotations

import attrs
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from actors.codec import rfc3339
from actors.ports import FilePart
from actors.stores import CHUNK_BYTES
from actors.stores.format import ChunkedFile, StoredSnapshot, parse_stored, stored_as_bytes
from actors.stores.places import ActorPlace, SnapshotPlace, snapshot_place
from actors.stores.retention import Found, nobodys_chunks, removable
from actors.stores.uris import read_uri
from statemachine.problem import ProblemError, Step
from tests.stores.stands import UID, manifest_of

PLACE = ActorPlace(read_uri(f"s3://bucket/{UID}"))
POOL = tuple(blake3(bytes([n])).hexdigest() for n in range(6))
SIZES = {digest: n + 1 for n, digest in enumerate(POOL)}


def stored(number, created_at, chunks):
    name = f"s{number:016x}"
    parts = tuple(FilePart(size_bytes=SIZES[each], blake3=each) for each in chunks)
    first = (FilePart(size_bytes=SIZES[POOL[0]], blake3=POOL[0]),)
    pages = first + parts
    whole = {"checkpoint.img": b"1", "pages_meta.img": b"1", "pages.img": bytes(sum(part.size_bytes for part in pages))}
    manifest = manifest_of(name, whole, rfc3339(created_at))
    files = tuple(
        ChunkedFile(file=file, chunks=pages if file.name == "pages.img" else first) for file in manifest.files
    )
    return StoredSnapshot(place=SnapshotPlace(PLACE, name), manifest=manifest, files=files)


@st.composite
def founds(draw):
    """Any store of an actor: snapshots of any age with any chunks, of which any may be missing or cut."""
    count = draw(st.integers(1, 6))
    snapshots = tuple(
        stored(number, draw(st.integers(0, 5)), draw(st.lists(st.sampled_from(POOL), max_size=4)))
        for number in range(count)
    )
    sizes = {
        each: draw(st.sampled_from([SIZES[each], SIZES[each], SIZES[each], 0]))
        for each in draw(st.sets(st.sampled_from(POOL)))
    }
    return Found(snapshots=snapshots, unread=tuple(draw(st.lists(st.sampled_from(["s9"]), max_size=1))), sizes=sizes)


@given(founds(), st.integers(1, 4), st.data())
def test_the_proven_one_and_the_newest_others_stay(found, kept, data):
    proven = data.draw(st.sampled_from(found.snapshots)).place.id
    gone = removable(found, proven=proven, kept=kept)
    left = [each for each in found.snapshots if each not in gone]
    assert proven in [each.place.id for each in left]
    assert all(map(found.is_whole, gone))
    others = [each for each in left if found.is_whole(each) and each.place.id != proven]
    assert len(others) == min(kept - 1, len(others) + len(gone))
    for each in others:
        assert all(each.snapshot.created_at >= older.snapshot.created_at for older in gone)


@given(founds())
def test_no_chunk_goes_that_a_manifest_names(found):
    gone = nobodys_chunks(found)
    assert set(gone) <= set(found.sizes)
    assert not {blake3 for each in found.snapshots for blake3 in each.chunks} & set(gone)
    if found.unread:
        assert gone == ()


@given(founds(), st.integers(1, 3), st.data())
def test_what_was_whole_before_and_stays_is_whole_afterwards(found, kept, data):
    proven = data.draw(st.sampled_from(found.snapshots)).place.id
    gone = removable(found, proven=proven, kept=kept)
    after = attrs.evolve(found, snapshots=tuple(each for each in found.snapshots if each not in gone))
    swept = set(nobodys_chunks(after))
    left = attrs.evolve(after, sizes={key: size for key, size in after.sizes.items() if key not in swept})
    assert [each for each in after.snapshots if left.is_whole(each)] == list(filter(found.is_whole, after.snapshots))


def test_what_is_not_called_as_ours_stays():
    mine = [stored(n, n, []) for n in range(3)]
    theirs = attrs.evolve(mine[0], place=SnapshotPlace(PLACE, "golden"))
    found = Found(snapshots=(theirs, *mine), unread=(), sizes={POOL[0]: SIZES[POOL[0]]})
    assert removable(found, proven=mine[2].place.id, kept=1) == tuple(mine[:2])


# ---- the manifest there


@given(st.lists(st.sampled_from(POOL), max_size=8))
def test_a_stored_manifest_reads_back(chunks):
    snapshot = stored(1, 1, chunks)
    assert parse_stored(stored_as_bytes(snapshot), snapshot.place, step=Step.RESTORE) == snapshot
    assert snapshot.size_bytes == 3 + sum(SIZES[each] for each in chunks)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_manifest_or_have_a_reason(data):
    with pytest.raises(ProblemError):
        parse_stored(data, SnapshotPlace(PLACE, "s1"), step=Step.RESTORE)


@given(st.integers(0, 5000), st.data())
def test_a_stored_manifest_with_a_changed_byte_never_breaks_out(at, data):
    snapshot = stored(1, 1, POOL[:3])
    raw = bytearray(stored_as_bytes(snapshot))
    raw[at % len(raw)] = data.draw(st.integers(0, 255))
    try:
        found = parse_stored(bytes(raw), snapshot.place, step=Step.RESTORE)
    except ProblemError:
        return
    if found is not None:
        for each in found.files:
            assert sum(chunk.size_bytes for chunk in each.chunks) == each.file.size_bytes
            assert all(0 < chunk.size_bytes <= CHUNK_BYTES for chunk in each.chunks)


@pytest.mark.parametrize("uri", ["s3://bucket", "s3://bucket/a1", "s3://bucket/a1/chunks", "file:///"])
def test_what_names_no_snapshot_is_missing(uri):
    with pytest.raises(ProblemError, match="SnapshotMissing"):
        snapshot_place(uri, step=Step.RESTORE)
