"""Bringing a snapshot into a store and fetching it again, over every store there is."""

from __future__ import annotations

import attrs
import orjson
import pytest
from blake3 import blake3

from actors.manifest import read_manifest
from actors.ports import FilePart
from actors.proof import verify
from actors.stores import (
    Cut,
    download,
    find_stored,
    list_stored,
    prune_stored,
    read_stored,
    snapshot_uri,
    upload,
    verify_stored,
    verify_stored_deeply,
)
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.stores.sending import PAGES, PARTS, changed, chunk_key, reasons_of, sent
from tests.stores.stands import CHUNK_BYTES, SOON_S, UID

pytestmark = pytest.mark.anyio


async def test_a_snapshot_that_went_to_a_store_and_back_is_the_same(stand):
    directory = await stand.snapshot(PAGES)
    stored = await sent(stand, directory)
    assert stored.uri == f"{stand.uri}/{UID}/{directory.name}"
    fetched = stand.root / "fetched" / directory.name
    manifest = await download(stand.files, stand.stores, stored.uri, fetched)
    assert await stand.content(fetched) == await stand.content(directory)
    assert manifest == await read_manifest(stand.files, directory)
    await verify(stand.files, fetched, manifest)


async def test_a_snapshot_lies_in_a_store_as_designed(stand):
    directory = await stand.snapshot(PAGES)
    await sent(stand, directory)
    objects = await stand.objects()
    manifest = orjson.loads(objects.pop(f"{UID}/{directory.name}/manifest.json"))
    assert all(key == chunk_key(data) for key, data in objects.items())
    assert len(objects) == PARTS - 1  # two are equal
    chunks = manifest.pop("chunks")
    assert manifest == orjson.loads(await stand.files.read(directory / "manifest.json", limit_bytes=1 << 20))
    assert chunks["empty"] == []
    assert [each["size"] for each in chunks["pages.img"]] == [CHUNK_BYTES] * 4 + [8]
    assert chunks["pages.img"][1] == chunks["pages.img"][3]


async def test_what_the_machine_remembers_of_a_stored_snapshot(stand):
    directory = await stand.snapshot(PAGES)
    stored = await sent(stand, directory)
    snapshot = stored.snapshot
    assert (snapshot.id, snapshot.uri) == (directory.name, stand.uri_of(directory))
    assert stored.size_bytes == 4 * CHUNK_BYTES + 8 + 9
    assert await read_stored(stand.stores, stored.uri) == stored
    assert await find_stored(stand.stores, stored.uri) == stored
    assert await verify_stored(stand.stores, stored.uri) == stored
    assert await verify_stored_deeply(stand.stores, stored.uri) == stored


async def test_an_upload_that_was_done_is_done_again_without_sending_anything(stand):
    directory = await stand.snapshot(PAGES)
    stored = await sent(stand, directory)
    # It would be refused, if any part of it were sent.
    await stand.files.replace(directory / "checkpoint.img", b"other")
    with pytest.raises(ProblemError):
        await sent(stand, directory)
    await stand.files.replace(directory / "checkpoint.img", b"image")
    assert await sent(stand, directory) == stored


async def test_only_chunks_that_are_not_there_are_sent(stand):
    first, second = await stand.snapshot(PAGES), await stand.snapshot({"pages.img": PAGES["pages.img"] + b"more"})
    await sent(stand, first)
    before = set(await stand.keys())
    await sent(stand, second)
    new = set(await stand.keys()) - before
    assert new == {f"{UID}/{second.name}/manifest.json", chunk_key(b"the restmore")}


async def test_a_chunk_that_was_cut_in_the_store_is_sent_again(stand):
    directory = await stand.snapshot(PAGES)
    stored = await sent(stand, directory)
    key = chunk_key(b"\2" * CHUNK_BYTES)
    await stand.put(key, b"\2" * 10)
    assert await reasons_of(verify_stored(stand.stores, stored.uri)) == [Reason.SNAPSHOT_CORRUPT]
    await sent(stand, directory)
    assert await stand.get(key) == b"\2" * CHUNK_BYTES


async def test_a_snapshot_that_is_damaged_here_is_not_uploaded(stand):
    directory = await stand.snapshot(PAGES)
    data = bytearray(PAGES["pages.img"])
    data[5] ^= 1
    await stand.files.replace(directory / "pages.img", bytes(data))
    assert await reasons_of(sent(stand, directory)) == [Reason.SNAPSHOT_CORRUPT]
    assert await stand.keys() == []


class Meddled:
    """Stores of which every chunk that is put goes through the hands of somebody."""

    def __init__(self, stand, hands):
        self._stand, self._hands = stand, hands

    def open(self, uri):
        store, hands = self._stand.stores.open(uri), self._hands

        class Store:
            def __getattr__(self, name):
                return getattr(store, name)

            async def put_part_of(self, *args, **options):
                return await hands(store, *args, **options)

        return Store()


async def test_a_file_that_changes_while_it_is_uploaded_becomes_no_snapshot_and_leaves_no_wrong_chunk(stand):
    directory = await stand.snapshot(PAGES)

    async def damage(store, key, path, **part):
        if path.name == "pages.img":
            await stand.files.replace(path, b"\7" * len(PAGES["pages.img"]))
        return await store.put_part_of(key, path, **part)

    sending = upload(
        stand.files, Meddled(stand, damage), directory, stand.uri_of(directory), chunk_bytes=CHUNK_BYTES, cut=Cut()
    )
    assert await reasons_of(sending) == [Reason.SNAPSHOT_NOT_UPLOADED]
    for key, data in (await stand.objects()).items():
        assert key == chunk_key(data)
    assert await reasons_of(sent(stand, directory)) == [Reason.SNAPSHOT_CORRUPT]


async def test_a_chunk_that_a_store_loses_after_it_has_taken_it_is_missed(stand):
    directory = await stand.snapshot(PAGES)

    async def lose(store, key, *args, **options):
        answer = await store.put_part_of(key, *args, **options)
        if key.endswith(blake3(b"the rest").hexdigest()):
            await store.remove(key, deadline_s=SOON_S)
        return answer

    with pytest.raises(ProblemError, match="1 of 6 chunks are not there"):
        await upload(stand.files, Meddled(stand, lose), directory, stand.uri_of(directory), chunk_bytes=CHUNK_BYTES)
    assert await list_stored(stand.stores, stand.uri) == ()
    await verify_stored_deeply(stand.stores, (await sent(stand, directory)).uri)


async def test_what_is_no_snapshot_here_is_not_uploaded(stand):
    assert await reasons_of(sent(stand, stand.root / "s1")) == [Reason.SNAPSHOT_MISSING]
    assert await stand.keys() == []


@pytest.mark.parametrize("uri", ["http://host/a1/s1", "s3:///a1/s1", "nothing", "s3://user:secret@bucket/a1/s1"])
async def test_what_is_no_uri_of_a_store_is_not_supported(stand, uri):
    directory = await stand.snapshot({})
    with pytest.raises(ProblemError) as caught:
        await upload(stand.files, stand.stores, directory, uri)
    assert caught.value.problem.reason is Reason.NOT_SUPPORTED
    assert "secret" not in repr(caught.value.problem)
    with pytest.raises(ProblemError):
        snapshot_uri(uri, "a1", "s1")


# ---- a directory of the worker is no store


async def test_a_directory_of_the_worker_is_no_stored_snapshot(stand):
    directory = await stand.snapshot(PAGES)
    assert await find_stored(stand.stores, directory.as_uri()) is None
    assert await find_stored(stand.stores, "file:///") is None
    assert await find_stored(stand.stores, f"file://{stand.root}/not/there") is None
    assert await find_stored(stand.stores, f"file://{stand.root}/not%20/th%5Bere%FF") is None


async def test_what_is_in_no_store_is_missing(stand):
    uri = f"{stand.uri}/{UID}/s0000000000000000"
    assert await reasons_of(read_stored(stand.stores, uri)) == [Reason.SNAPSHOT_MISSING]
    assert await reasons_of(read_stored(stand.stores, f"{stand.uri}/chunks")) == [Reason.SNAPSHOT_MISSING]


# ---- which there are, which stay


async def test_snapshots_are_listed_below_a_store_an_actor_and_themselves(stand):
    first, second = await stand.snapshot(PAGES), await stand.snapshot({"pages.img": b"2"})
    uris = [(await sent(stand, directory)).uri for directory in (second, first)]
    await stand.put("notes.txt", b"of somebody else")
    for base, expected in ((stand.uri, uris[::-1]), (stand.actor_uri, uris[::-1]), (uris[0], uris[:1])):
        assert [each.uri for each in await list_stored(stand.stores, base)] == expected


async def test_of_an_actors_snapshots_the_newest_two_stay(stand):
    directories = [await stand.snapshot({"pages.img": b"%d" % n, "shared": b"shared"}) for n in range(4)]
    uris = [(await sent(stand, directory)).uri for directory in directories]
    pruned = await prune_stored(stand.stores, stand.actor_uri, proven=directories[3].name)
    assert pruned.snapshots == tuple(uris[:2])
    assert pruned.chunks == 2
    left = await list_stored(stand.stores, stand.uri)
    assert [each.uri for each in left] == uris[2:]
    for each in left:
        await verify_stored_deeply(stand.stores, each.uri)
    assert set(await stand.keys()) >= {chunk_key(b"shared"), chunk_key(b"image")}
    assert chunk_key(b"0") not in await stand.keys()


async def test_nothing_is_removed_before_the_new_one_is_whole(stand):
    directories = [await stand.snapshot({"pages.img": b"%d" % n}) for n in range(4)]
    for directory in directories:
        await sent(stand, directory)
    await stand.remove(chunk_key(b"3"))
    before = await stand.keys()
    proven = directories[3].name
    assert await reasons_of(prune_stored(stand.stores, stand.actor_uri, proven=proven)) == [Reason.SNAPSHOT_CORRUPT]
    assert await reasons_of(prune_stored(stand.stores, stand.actor_uri, proven="s" + "f" * 16)) == [
        Reason.SNAPSHOT_MISSING
    ]
    assert await stand.keys() == before


@pytest.mark.parametrize("how", ["newer", "damaged"])
async def test_while_a_manifest_cannot_be_read_every_chunk_stays(stand, how):
    directories = [await stand.snapshot({"pages.img": b"%d" % n}) for n in range(4)]
    for directory in directories:
        await sent(stand, directory)
    key = f"{UID}/{directories[1].name}/manifest.json"
    await stand.put(key, changed(await stand.get(key), v=99) if how == "newer" else b"{")
    pruned = await prune_stored(stand.stores, stand.actor_uri, proven=directories[3].name)
    assert pruned.snapshots == (stand.uri_of(directories[0]),)
    assert pruned.unread == (stand.uri_of(directories[1]),)
    assert pruned.chunks == 0
    assert set(await stand.keys()) >= {key, *(chunk_key(b"%d" % n) for n in range(4))}


async def test_what_an_upload_left_that_was_cut_off_goes_with_the_next_pruning(stand):
    directory = await stand.snapshot(PAGES)
    await sent(stand, directory)
    await stand.put(chunk_key(b"of nobody"), b"of nobody")
    pruned = await prune_stored(stand.stores, stand.actor_uri, proven=directory.name)
    assert (pruned.snapshots, pruned.chunks) == ((), 1)
    await verify_stored_deeply(stand.stores, stand.uri_of(directory))


async def test_other_actors_are_left_alone(stand):
    directory = await stand.snapshot(PAGES)
    await sent(stand, directory)
    await stand.put("a2/chunks/c1", b"theirs")
    await stand.put(f"{UID}/notes/about/it", b"somebody's")
    await prune_stored(stand.stores, stand.actor_uri, proven=directory.name)
    assert set(await stand.keys()) >= {"a2/chunks/c1", f"{UID}/notes/about/it"}


# ---- the parts of a file


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 3000, 3001])
async def test_a_file_is_cut_into_parts_of_one_size_and_a_rest(stand, size):
    data = bytes(range(256)) * 12
    path = stand.root / "file"
    await stand.files.replace(path, data[:size])
    digests = await stand.files.digest_parts(path, part_bytes=1000)
    parts = [data[start : min(start + 1000, size)] for start in range(0, size, 1000)]
    assert digests.parts == tuple(FilePart(size_bytes=len(part), blake3=blake3(part).hexdigest()) for part in parts)
    assert digests.blake3 == await stand.files.digest(path)


async def test_two_actors_do_not_share_chunks(stand):
    directory = await stand.snapshot(PAGES)
    await sent(stand, directory)
    manifest = await read_manifest(stand.files, directory)
    other = stand.root / "other"
    await stand.files.make_directory(other)
    for name, data in (await stand.content(directory)).items():
        await stand.files.replace(other / name, data)
    await stand.files.replace(
        other / "manifest.json", changed((await stand.content(directory))["manifest.json"], actor="a2")
    )
    assert attrs.evolve(manifest, actor="a2") == await read_manifest(stand.files, other)
    uri = snapshot_uri(stand.uri, "a2", directory.name)
    await upload(stand.files, stand.stores, other, uri, chunk_bytes=CHUNK_BYTES)
    for key in [key for key in await stand.keys() if key.startswith(f"{UID}/")]:
        await stand.store.remove(key, deadline_s=SOON_S)
    await verify_stored_deeply(stand.stores, uri)
