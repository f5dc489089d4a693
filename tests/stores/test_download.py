"""Fetching a snapshot from a store: what is not whole there, or does not fit here, becomes no snapshot here."""

from __future__ import annotations

import errno

import orjson
import pytest

from actors.stores import Unreadable, download, list_stored, read_stored, verify_stored, verify_stored_deeply
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.stores.sending import PAGES, changed, chunk_key, reasons_of, sent
from tests.stores.stands import CHUNK_BYTES, UID

pytestmark = pytest.mark.anyio


async def test_a_snapshot_without_a_manifest_is_none(stand):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    await stand.remove(f"{UID}/{directory.name}/manifest.json")
    for awaitable in (
        read_stored(stand.stores, uri),
        verify_stored(stand.stores, uri),
        download(stand.files, stand.stores, uri, stand.root / "there"),
    ):
        assert await reasons_of(awaitable) == [Reason.SNAPSHOT_MISSING]
    assert await list_stored(stand.stores, stand.uri) == ()


@pytest.mark.parametrize("spoil", ["removed", "cut", "longer"])
async def test_a_chunk_that_is_not_there_with_its_size_is_noticed_before_anything_is_fetched(stand, spoil):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    key, data = chunk_key(b"\3" * CHUNK_BYTES), b"\3" * CHUNK_BYTES
    if spoil == "removed":
        await stand.remove(key)
    else:
        await stand.put(key, data[:-1] if spoil == "cut" else data + b"3")
    with pytest.raises(ProblemError) as caught:
        await verify_stored(stand.stores, uri)
    assert [problem.subject for problem in caught.value.problems] == [f"{uri}/pages.img"]
    assert await reasons_of(download(stand.files, stand.stores, uri, stand.root / "there")) == [Reason.SNAPSHOT_CORRUPT]
    assert await stand.files.lstat(stand.root / "there") is None


async def test_a_chunk_with_another_content_is_noticed_when_it_is_read(stand):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    await stand.put(chunk_key(b"\3" * CHUNK_BYTES), b"\3" * (CHUNK_BYTES - 1) + b"\4")
    await verify_stored(stand.stores, uri)
    assert await reasons_of(verify_stored_deeply(stand.stores, uri)) == [Reason.SNAPSHOT_CORRUPT]
    assert await reasons_of(download(stand.files, stand.stores, uri, stand.root / "there")) == [Reason.SNAPSHOT_CORRUPT]
    assert await stand.files.lstat(stand.root / "there" / "manifest.json") is None


async def test_what_was_left_of_an_earlier_download_is_replaced(stand):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    there = stand.root / "there"
    await stand.files.make_directory(there)
    await stand.files.replace(there / "pages.img", b"9" * 100_000)
    await stand.files.replace(there / "something", b"else")
    await download(stand.files, stand.stores, uri, there)
    assert await stand.content(there) == await stand.content(directory)


def with_chunks(data, **chunks):
    document = orjson.loads(data)
    return orjson.dumps({**document, "chunks": {**document["chunks"], **chunks}})


DIGEST = "0" * 64
UNBELIEVABLE = {
    "no JSON": lambda data: b"{",
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "of another actor": lambda data: changed(data, actor="a2"),
    "of another snapshot": lambda data: changed(data, id="s9"),
    "chunks of nothing": lambda data: changed(data, chunks={}),
    "chunks are an array": lambda data: changed(data, chunks=[]),
    "chunks are null": lambda data: changed(data, chunks=None),
    "a file's are an object": lambda data: with_chunks(data, **{"pages.img": {}}),
    "a file's are none": lambda data: with_chunks(data, **{"pages.img": []}),
    "a file too many": lambda data: with_chunks(data, **{"../x": []}),
    "a chunk is a number": lambda data: with_chunks(data, **{"pages.img": [1]}),
    "negative": lambda data: with_chunks(data, **{"pages.img": [{"size": -1, "blake3": DIGEST}]}),
    "nothing in it": lambda data: with_chunks(data, empty=[{"size": 0, "blake3": DIGEST}]),
    "too large": lambda data: with_chunks(data, **{"pages.img": [{"size": (64 << 20) + 1, "blake3": DIGEST}]}),
    "a flag": lambda data: with_chunks(data, **{"pages.img": [{"size": True, "blake3": DIGEST}]}),
    "a fraction": lambda data: with_chunks(data, **{"pages.img": [{"size": 1.0, "blake3": DIGEST}]}),
    "no digest": lambda data: with_chunks(data, **{"pages.img": [{"size": 8}]}),
    "a path": lambda data: with_chunks(data, **{"pages.img": [{"size": 8, "blake3": "../../a2/chunks/c"}]}),
    "two sizes": lambda data: with_chunks(
        data, **{"checkpoint.img": [{"size": 2, "blake3": DIGEST}, {"size": 3, "blake3": DIGEST}]}
    ),
    "a file outside": lambda data: changed(data, files=[{"name": "../x", "size": 0, "blake3": DIGEST}]),
    "a manifest in it": lambda data: changed(data, files=[{"name": "manifest.json", "size": 0, "blake3": DIGEST}]),
}


@pytest.mark.parametrize("how", UNBELIEVABLE)
async def test_a_manifest_that_does_not_fit_is_not_believed(on_s3, how):
    stand = on_s3
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    key = f"{UID}/{directory.name}/manifest.json"
    await stand.put(key, UNBELIEVABLE[how](await stand.get(key)))
    assert await reasons_of(download(stand.files, stand.stores, uri, stand.root / "there")) == [Reason.SNAPSHOT_CORRUPT]
    assert await stand.files.lstat(stand.root / "there") is None
    (listed,) = await list_stored(stand.stores, stand.uri)
    assert isinstance(listed, Unreadable)
    assert listed.problem.reason is Reason.SNAPSHOT_CORRUPT


async def test_good_chunks_in_another_order_are_another_file(stand):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    key = f"{UID}/{directory.name}/manifest.json"
    data = await stand.get(key)
    first, second, *others = orjson.loads(data)["chunks"]["pages.img"]
    await stand.put(key, with_chunks(data, **{"pages.img": [second, first, *others]}))
    await verify_stored_deeply(stand.stores, uri)
    assert await reasons_of(download(stand.files, stand.stores, uri, stand.root / "there")) == [Reason.SNAPSHOT_CORRUPT]
    assert await stand.files.lstat(stand.root / "there" / "manifest.json") is None


async def test_a_newer_format_is_set_aside_by_its_reason(stand):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    key = f"{UID}/{directory.name}/manifest.json"
    await stand.put(key, changed(await stand.get(key), v=99))
    for awaitable in (
        read_stored(stand.stores, uri),
        verify_stored(stand.stores, uri),
        download(stand.files, stand.stores, uri, stand.root / "there"),
    ):
        assert await reasons_of(awaitable) == [Reason.NEWER_FORMAT]
    (listed,) = await list_stored(stand.stores, stand.uri)
    assert isinstance(listed, Unreadable)
    assert (listed.uri, listed.problem.reason) == (uri, Reason.NEWER_FORMAT)


async def test_members_that_a_later_version_added_are_passed_over(stand):
    directory = await stand.snapshot(PAGES)
    stored = await sent(stand, directory)
    key = f"{UID}/{directory.name}/manifest.json"
    await stand.put(key, changed(await stand.get(key), later={"x": 1}))
    assert await read_stored(stand.stores, stored.uri) == stored


async def test_a_manifest_larger_than_any_is_not_read(stand, monkeypatch):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri
    monkeypatch.setattr("actors.stores.looking.STORED_MANIFEST_BYTES_MAX", 100)
    assert await reasons_of(read_stored(stand.stores, uri)) == [Reason.SNAPSHOT_CORRUPT]


async def test_a_snapshot_that_does_not_fit_is_not_fetched(stand):
    directory = await stand.snapshot(PAGES)
    stored = await sent(stand, directory)

    class Full:
        def __getattr__(self, name):
            return getattr(stand.files, name)

        async def free_bytes(self, path):
            return stored.size_bytes - 1

    there = stand.root / "there"
    assert await reasons_of(download(Full(), stand.stores, stored.uri, there)) == [Reason.INSUFFICIENT_DISK]
    assert await stand.content(there) == {}


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, Reason.INSUFFICIENT_DISK), (errno.EROFS, Reason.STATE_UNWRITABLE)]
)
@pytest.mark.parametrize("operation", ["make_directory", "append", "sync_tree", "replace"])
async def test_a_disk_that_fails_meanwhile_has_its_reason(stand, operation, number, reason):
    directory = await stand.snapshot(PAGES)
    uri = (await sent(stand, directory)).uri

    class Failing:
        def __getattr__(self, name):
            if name == operation:
                raise OSError(number, "it fails")
            return getattr(stand.files, name)

    there = stand.root / "there"
    assert await reasons_of(download(Failing(), stand.stores, uri, there)) == [reason]
    assert await stand.files.lstat(there / "manifest.json") is None
