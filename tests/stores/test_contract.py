"""What every store does, the simulated one and the real ones: memory, a directory, an S3 server."""

from __future__ import annotations

import errno

import pytest
from blake3 import blake3

from actors.ports import StoredObject, StoreError, TooLargeError
from tests.stores.stands import SOON_S

pytestmark = pytest.mark.anyio

KEY = "a1/chunks/c1"


async def test_what_was_put_is_got(stand):
    await stand.put(KEY, b"one")
    assert await stand.get(KEY) == b"one"
    assert await stand.store.list("", deadline_s=SOON_S) == (StoredObject(key=KEY, size_bytes=3),)


async def test_an_object_is_replaced_as_a_whole(stand):
    await stand.put(KEY, b"a longer one")
    await stand.put(KEY, b"short")
    assert await stand.objects() == {KEY: b"short"}


async def test_an_object_may_be_empty(stand):
    await stand.put(KEY, b"")
    assert await stand.get(KEY) == b""
    assert await stand.store.list("", deadline_s=SOON_S) == (StoredObject(key=KEY, size_bytes=0),)


async def test_nothing_is_in_a_store_that_nobody_wrote_to(stand):
    assert await stand.keys() == []
    with pytest.raises(FileNotFoundError):
        await stand.get(KEY)
    await stand.remove(KEY)


async def test_what_was_removed_is_gone(stand):
    await stand.put(KEY, b"one")
    await stand.put("a1/chunks/c2", b"two")
    await stand.remove(KEY)
    await stand.remove(KEY)
    assert await stand.objects() == {"a1/chunks/c2": b"two"}


async def test_names_that_only_begin_alike_are_not_listed(stand):
    for key in ("a/b/two", "a/b/one", "a/b2", "a2/b", "c"):
        await stand.put(key, key.encode())
    listed = await stand.store.list("a/b", deadline_s=SOON_S)
    assert listed == (StoredObject(key="a/b/one", size_bytes=7), StoredObject(key="a/b/two", size_bytes=7))
    assert await stand.keys() == ["a/b/one", "a/b/two", "a/b2", "a2/b", "c"]


async def test_a_store_below_another_has_the_same_objects(stand):
    await stand.put("a1/s1/manifest.json", b"m")
    below = stand.stores.open(f"{stand.uri}/a1")
    assert await below.get("s1/manifest.json", limit_bytes=9, deadline_s=SOON_S) == b"m"
    await below.put("s2/manifest.json", b"n", deadline_s=SOON_S)
    assert await stand.keys() == ["a1/s1/manifest.json", "a1/s2/manifest.json"]


async def test_an_object_that_is_too_large_is_not_got(stand):
    await stand.put(KEY, b"12345")
    assert await stand.store.get(KEY, limit_bytes=5, deadline_s=SOON_S) == b"12345"
    with pytest.raises(TooLargeError):
        await stand.store.get(KEY, limit_bytes=4, deadline_s=SOON_S)


@pytest.mark.parametrize("key", ["", "a//b", "../a", "a/..", "/a", "a/", "a b", "a%2fb", "a\0"])
async def test_what_is_no_key_is_refused_before_anything_is_done(stand, key):
    with pytest.raises(ValueError, match="key"):
        await stand.put(key, b"")


@pytest.mark.parametrize("part", [(0, 5), (3, 4), (9, 1), (0, 10), (4, 0)])
async def test_a_part_of_a_file_is_put(stand, part):
    offset, size = part
    await stand.files.replace(stand.root / "file", b"0123456789")
    sent = await stand.store.put_part_of(
        KEY, stand.root / "file", offset_bytes=offset, size_bytes=size, deadline_s=SOON_S
    )
    assert await stand.get(KEY) == b"0123456789"[offset : offset + size]
    assert sent == blake3(b"0123456789"[offset : offset + size]).hexdigest()


async def test_a_part_larger_than_what_is_sent_at_once_is_put_whole(stand):
    data = bytes(range(251)) * 50_000
    await stand.files.replace(stand.root / "file", data)
    sent = await stand.store.put_part_of(
        KEY, stand.root / "file", offset_bytes=100, size_bytes=len(data) - 200, deadline_s=SOON_S
    )
    assert await stand.get(KEY) == data[100:-100]
    assert sent == blake3(data[100:-100]).hexdigest()


@pytest.mark.parametrize("size", [11, 6 << 20])
async def test_of_a_file_that_is_too_short_nothing_is_put(stand, size):
    await stand.files.replace(stand.root / "file", b"0123456789")
    with pytest.raises(OSError) as caught:
        await stand.store.put_part_of(KEY, stand.root / "file", offset_bytes=0, size_bytes=size, deadline_s=SOON_S)
    assert (caught.value.errno, caught.value.filename) == (errno.ENODATA, str(stand.root / "file"))
    assert not isinstance(caught.value, StoreError)
    assert await stand.keys() == []


async def test_of_a_file_that_is_absent_nothing_is_put(stand):
    with pytest.raises(FileNotFoundError) as caught:
        await stand.store.put_part_of(KEY, stand.root / "file", offset_bytes=0, size_bytes=1, deadline_s=SOON_S)
    assert caught.value.filename == str(stand.root / "file")


async def test_an_object_is_written_into_a_file_at_an_offset(stand):
    await stand.put("one", b"11111")
    await stand.put("two", b"22222")
    path = stand.root / "file"
    second = await stand.store.get_into("two", path, offset_bytes=5, size_bytes=5, deadline_s=SOON_S)
    assert await stand.files.read(path, limit_bytes=99) == b"\0\0\0\0\x0022222"
    await stand.store.get_into("one", path, offset_bytes=0, size_bytes=5, deadline_s=SOON_S)
    assert await stand.files.read(path, limit_bytes=99) == b"1111122222"
    assert second == blake3(b"22222").hexdigest()


async def test_a_large_object_is_written_whole(stand):
    data = bytes(range(253)) * 20_000
    await stand.put(KEY, data)
    found = await stand.store.get_into(
        KEY, stand.root / "file", offset_bytes=0, size_bytes=len(data), deadline_s=SOON_S
    )
    assert found == blake3(data).hexdigest() == await stand.files.digest(stand.root / "file")


@pytest.mark.parametrize("size", [4, 6])
async def test_an_object_of_another_size_is_not_written(stand, size):
    await stand.put(KEY, b"12345")
    with pytest.raises(StoreError, match=f"5 bytes, not {size}"):
        await stand.store.get_into(KEY, stand.root / "file", offset_bytes=0, size_bytes=size, deadline_s=SOON_S)
    assert await stand.files.lstat(stand.root / "file") is None


async def test_an_object_that_is_absent_is_not_written(stand):
    with pytest.raises(FileNotFoundError):
        await stand.store.get_into(KEY, stand.root / "file", offset_bytes=0, size_bytes=1, deadline_s=SOON_S)
    assert await stand.files.lstat(stand.root / "file") is None


async def test_nothing_is_written_outside_our_directories(stand):
    await stand.put(KEY, b"1")
    with pytest.raises(PermissionError):
        await stand.store.get_into(
            KEY, stand.root.parent / "elsewhere", offset_bytes=0, size_bytes=1, deadline_s=SOON_S
        )


async def test_a_digest_is_that_of_the_content(stand):
    await stand.put(KEY, b"12345")
    assert await stand.store.digest(KEY, size_bytes=5, deadline_s=SOON_S) == blake3(b"12345").hexdigest()
    with pytest.raises(StoreError):
        await stand.store.digest(KEY, size_bytes=4, deadline_s=SOON_S)
    with pytest.raises(FileNotFoundError):
        await stand.store.digest("a1/chunks/none", size_bytes=4, deadline_s=SOON_S)


@pytest.mark.parametrize("uri", ["", "bucket", "http://host/x", "s3://", "s3://user:pass@bucket/x", "s3://b/x?y=1"])
async def test_what_is_no_uri_of_a_store_is_refused(stand, uri):
    with pytest.raises(ValueError, match="URI"):
        stand.stores.open(uri)
