"""What can go wrong on the way to a real S3 server: each fault is seen to happen, and none is taken for success."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from blake3 import blake3

from actors.ports import StoreError
from actors.stores import download, list_stored, prune_stored, read_stored, upload, verify_stored, verify_stored_deeply
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.host import obstores
from tests.host.waiting import eventually
from tests.leaks import Belongings, find_leaks
from tests.stores.stands import CHUNK_BYTES, SOON_S, UID, real

pytestmark = pytest.mark.anyio

KEY = f"{UID}/chunks/c1"
CONTENT = {"pages.img": b"".join(bytes([n]) * CHUNK_BYTES for n in range(6))}
CHUNKS = 8


async def sent(stand, directory):
    return await upload(stand.files, stand.stores, directory, stand.uri_of(directory), chunk_bytes=CHUNK_BYTES)


async def problem_of(awaitable):
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return caught.value.problem


def chunk_puts(s3):
    return [each for each in s3.requests if each.startswith("PUT") and "/chunks/" in each]


@pytest.mark.parametrize("what", ["500", "drop"])
async def test_what_breaks_down_for_a_moment_is_tried_again(on_s3, s3, what):
    s3.plan(what, times=2)
    await on_s3.put(KEY, b"one")
    assert s3.fired == [2]
    assert await on_s3.get(KEY) == b"one"


@pytest.mark.parametrize("what", ["500", "drop", "403"])
async def test_a_store_that_stays_down_is_an_error_of_the_store(on_s3, s3, what):
    s3.plan(what)
    with pytest.raises(StoreError) as caught:
        await on_s3.put(KEY, b"one")
    assert s3.fired[0] >= (1 if what == "403" else 2)
    assert str(on_s3.uri) in caught.value.filename


async def test_an_upload_to_a_store_that_is_down_says_what_the_store_said(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    s3.plan("403")
    problem = await problem_of(sent(on_s3, directory))
    assert problem.reason is Reason.SNAPSHOT_NOT_UPLOADED
    assert problem.subject == on_s3.uri_of(directory)
    assert "AccessDenied: Access Denied" in problem.message
    assert s3.fired[0] >= 1


@pytest.mark.parametrize("what", ["403", "500", "drop"])
async def test_what_fails_in_the_same_way_says_the_same_however_long_it_took(on_s3, s3, what):
    directory = await on_s3.snapshot({})
    s3.plan(what, path="manifest.json")
    first = await problem_of(sent(on_s3, directory))
    assert first == await problem_of(sent(on_s3, directory))
    assert on_s3.uri_of(directory) in first.message
    assert s3.fired[0] >= 2


async def test_no_secret_and_no_signature_is_ever_told(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    s3.plan("403", method="GET")
    s3.plan("403")
    for awaitable in (sent(on_s3, directory), read_stored(on_s3.stores, on_s3.uri_of(directory))):
        text = repr(await problem_of(awaitable))
        assert "AccessDenied" in text
        for secret in ("AKIATHEKEYSID", "the-secret-itself", "string-to-sign", "X-Amz", "?"):
            assert secret not in text


async def test_without_a_bucket_nothing_is_uploaded(on_s3):
    directory = await on_s3.snapshot(CONTENT)
    nowhere = on_s3.uri_of(directory).replace("bucket-", "nobucket-")
    problem = await problem_of(upload(on_s3.files, on_s3.stores, directory, nowhere))
    assert problem.reason is Reason.SNAPSHOT_NOT_UPLOADED
    assert "NoSuchBucket" in problem.message


@pytest.mark.parametrize("what", ["500", "drop", "403"])
async def test_an_upload_that_was_cut_off_sends_only_the_missing_chunks_the_next_time(on_s3, s3, what):
    directory = await on_s3.snapshot(CONTENT)
    victim = blake3(b"\4" * CHUNK_BYTES).hexdigest()
    s3.plan(what, path=victim)
    assert (await problem_of(sent(on_s3, directory))).reason is Reason.SNAPSHOT_NOT_UPLOADED
    assert s3.fired[0] >= 1
    s3.clear()
    there = {key for key in await on_s3.keys() if "/chunks/" in key}
    assert 1 <= len(there) < CHUNKS
    assert await list_stored(on_s3.stores, on_s3.uri) == ()
    s3.clear()
    stored = await sent(on_s3, directory)
    puts = chunk_puts(s3)
    # One that was on its way when the other failed may have come after that look: sent once, it is not sent again.
    assert len(set(puts)) == len(puts) <= CHUNKS - len(there)
    assert [each for each in puts if victim in each]
    assert not [each for each in puts if any(key in each for key in there)]
    await verify_stored_deeply(on_s3.stores, stored.uri)


async def cancelled_at_its_fault(s3, call):
    """Cancel a call once it has met the fault that was planned, in which it hangs; returns whether that ended it."""
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await eventually(lambda: s3.fired[0])
        group.cancel_scope.cancel()
    return group.cancel_scope.cancelled_caught


async def hung(s3, store):
    """A call that hangs is given up at its deadline, one that has left it the time to come to the server."""
    for deadline_s in (0.3, 3.0, 30.0):
        s3.clear()
        s3.plan("hang")
        with pytest.raises(StoreError, match=f"did not answer within {deadline_s:g} s"):
            await store.put(KEY, b"one", deadline_s=deadline_s)
        if s3.fired == [1]:
            return
    raise AssertionError("it never came there")


async def test_an_upload_is_cancelled_at_once_and_goes_on_later(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    s3.plan("hang", path="/chunks/")
    assert await cancelled_at_its_fault(s3, partial(sent, on_s3, directory))
    s3.clear()
    await verify_stored_deeply(on_s3.stores, (await sent(on_s3, directory)).uri)


async def test_a_call_that_hangs_ends_at_its_deadline(on_s3, s3):
    await hung(s3, on_s3.store)
    assert s3.fired == [1]
    s3.clear()


async def test_a_request_that_stands_still_is_given_up(on_s3, s3, monkeypatch):
    monkeypatch.setattr(obstores, "STALLED_S", 0.2)
    monkeypatch.setattr(obstores, "RETRYING_S", 0.1)
    s3.plan("hang", method="GET", path="c1$")
    with pytest.raises(StoreError) as caught:
        await on_s3.get(KEY)
    assert "within" not in str(caught.value)
    await eventually(lambda: s3.fired[0])  # a busy server may come to it after who asked has gone


async def test_too_many_calls_that_hang_are_not_followed_by_more(on_s3, s3):
    s3.plan("hang")
    for _ in range(40):
        with pytest.raises(StoreError):
            await on_s3.store.put(KEY, b"one", deadline_s=0.01)
    assert len([each for each in s3.requests if KEY in each]) <= 16
    s3.clear()


@pytest.mark.parametrize("what", ["lost"])
async def test_an_answer_that_is_lost_does_no_harm(on_s3, s3, what):
    directory = await on_s3.snapshot(CONTENT)
    s3.plan(what, path="/chunks/", times=3)
    s3.plan(what, path="manifest.json", times=1)
    stored = await sent(on_s3, directory)
    assert s3.fired == [3, 1]
    await verify_stored_deeply(on_s3.stores, stored.uri)


async def test_when_every_answer_is_lost_the_next_upload_finds_what_was_done(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    s3.plan("lost", path="manifest.json")
    assert (await problem_of(sent(on_s3, directory))).reason is Reason.SNAPSHOT_NOT_UPLOADED
    s3.clear()
    stored = await sent(on_s3, directory)
    assert not [each for each in s3.requests if each.startswith("PUT")]
    await verify_stored_deeply(on_s3.stores, stored.uri)


@pytest.mark.parametrize("path", ["/chunks/", "manifest.json"])
async def test_a_store_that_keeps_less_than_it_says_is_found_out(on_s3, s3, path):
    directory = await on_s3.snapshot(CONTENT)
    s3.plan("stored short", path=path, times=1)
    problem = await problem_of(sent(on_s3, directory))
    assert problem.reason is Reason.SNAPSHOT_NOT_UPLOADED
    assert "not there" in problem.message
    assert s3.fired == [1]
    s3.clear()
    await verify_stored_deeply(on_s3.stores, (await sent(on_s3, directory)).uri)
    assert len(chunk_puts(s3)) == (1 if path == "/chunks/" else 0)


async def test_a_chunk_that_is_sent_short_is_no_chunk(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    uri = (await sent(on_s3, directory)).uri
    s3.plan("sent short", method="GET", path=blake3(b"\4" * CHUNK_BYTES).hexdigest())
    there = on_s3.root / "there"
    problem = await problem_of(download(on_s3.files, on_s3.stores, uri, there))
    assert problem.reason is Reason.STORE_UNREACHABLE
    assert s3.fired[0] >= 1
    assert await on_s3.files.lstat(there / "manifest.json") is None
    s3.clear()
    await download(on_s3.files, on_s3.stores, uri, there)
    assert await on_s3.content(there) == await on_s3.content(directory)


async def test_a_chunk_that_changes_on_the_way_is_noticed(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    uri = (await sent(on_s3, directory)).uri
    s3.plan("flipped", method="GET", path=blake3(b"\4" * CHUNK_BYTES).hexdigest())
    there = on_s3.root / "there"
    problem = await problem_of(download(on_s3.files, on_s3.stores, uri, there))
    assert problem.reason is Reason.SNAPSHOT_CORRUPT
    assert s3.fired == [1]
    assert await on_s3.files.lstat(there / "manifest.json") is None


async def test_a_download_that_is_cancelled_writes_nothing_more(on_s3, s3):
    directory = await on_s3.snapshot(CONTENT)
    uri = (await sent(on_s3, directory)).uri
    there = on_s3.root / "there"
    s3.plan("hang", method="GET", path="/chunks/")
    assert await cancelled_at_its_fault(s3, partial(download, on_s3.files, on_s3.stores, uri, there))
    before = await on_s3.content(there)
    s3.clear()
    async with on_s3.stores.opened():
        pass  # no thread is left, so nothing can be written any more
    assert await on_s3.content(there) == before
    assert "manifest.json" not in before


async def test_a_pruning_that_was_cut_off_leaves_whole_snapshots_and_goes_on(on_s3, s3):
    directories = [await on_s3.snapshot({"pages.img": b"%d" % n}) for n in range(4)]
    for directory in directories:
        await sent(on_s3, directory)
    s3.plan("403", method="POST", path="delete")
    s3.plan("403", method="DELETE")
    problem = await problem_of(prune_stored(on_s3.stores, on_s3.actor_uri, proven=directories[3].name))
    assert problem.reason is Reason.STORE_UNREACHABLE
    assert sum(s3.fired) >= 1
    s3.clear()
    for each in await list_stored(on_s3.stores, on_s3.uri):
        await verify_stored(on_s3.stores, each.uri)
    await prune_stored(on_s3.stores, on_s3.actor_uri, proven=directories[3].name)
    assert [each.uri for each in await list_stored(on_s3.stores, on_s3.uri)] == [
        on_s3.uri_of(directory) for directory in directories[2:]
    ]


async def test_a_part_that_is_not_finished_leaves_nothing_in_the_bucket(on_s3, s3, bucket):
    await on_s3.files.replace(on_s3.root / "file", b"x" * (11 << 20))
    s3.plan("500", path="partNumber=2")
    with pytest.raises(StoreError):
        await on_s3.store.put_part_of(KEY, on_s3.root / "file", offset_bytes=0, size_bytes=11 << 20, deadline_s=SOON_S)
    assert s3.fired[0] >= 1
    assert [each for each in s3.requests if each.startswith("DELETE") and "uploadId" in each]
    assert await on_s3.keys() == []


async def test_connections_do_not_stay_when_the_stores_are_closed(anyio_backend, tmp_path, s3, bucket):
    before = Belongings.of(None)
    async with real("s3", tmp_path, bucket=bucket) as stand:
        await hung(s3, stand.store)
        assert Belongings.of(None).leaks_since(before) != []  # of who was left behind
        s3.clear()
    del stand
    assert find_leaks(before, None) == []
