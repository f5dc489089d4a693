"""The stores of a simulated world: faults of every kind meet uploads, downloads and prunings, and cost no snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from blake3 import blake3

from actors.manifest import MANIFEST_NAME, write_manifest
from actors.ports import SnapshotStore
from actors.stores import download, list_stored, prune_stored, snapshot_uri, upload, verify_stored_deeply
from sim.engine import run
from sim.faults import STORE, Fail, Fault, Halfway, Hang, Kill, Lie, Slow, When
from sim.lies import LIES
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.stores.stands import UID, manifest_of

STORE_URI = "s3://bucket/pre"
CONTENT = {"checkpoint.img": b"image", "pages_meta.img": b"meta", "pages.img": bytes(range(40))}
CHUNK_BYTES = 10
CHUNKS = 6
NAMES = [f"s{n:016x}" for n in range(4)]


def fault(what, **when):
    return Fault(id="f", when=When(port="stores", **when), what=what)


async def make(here, name=NAMES[0], pages=CONTENT["pages.img"]):
    directory = Path(here.world.settings.state_dir) / "made" / name
    files = here.worker.ports.files
    await files.make_directory(directory)
    content = {**CONTENT, "pages.img": pages}
    for each, data in content.items():
        await files.replace(directory / each, data)
    await write_manifest(files, directory, manifest_of(name, content, f"2026-11-29T15:00:0{name[-1]}.000Z"))
    return directory


async def send(here, directory):
    uri = snapshot_uri(STORE_URI, UID, directory.name)
    return await upload(here.worker.ports.files, here.worker.ports.stores, directory, uri, chunk_bytes=CHUNK_BYTES)


async def fetch(here, directory):
    uri, there = snapshot_uri(STORE_URI, UID, directory.name), directory.with_name("there")
    await download(here.worker.ports.files, here.worker.ports.stores, uri, there)
    return here.world.files_below(there)


FAILING = {
    "put": [Fail(STORE), Fail("EIO"), Hang(), Lie("notDone"), Lie("cut"), Halfway(at="sent", error=STORE)],
    "put_part_of": [Fail(STORE), Fail("EIO"), Hang(), Lie("notDone"), Lie("cut"), Halfway(at="sent", error=STORE)],
    "list": [Fail(STORE), Hang()],
    "get": [Fail(STORE), Hang()],
}


@pytest.mark.parametrize(("method", "what"), [(method, what) for method, all_ in FAILING.items() for what in all_])
def test_an_upload_that_fails_says_so_and_the_next_one_mends_it(method, what):
    async def life(here):
        directory = await make(here)
        planted = here.plant(fault(what, method=method, nth=2 if method == "put_part_of" else None))
        with pytest.raises(ProblemError) as caught:
            await send(here, directory)
        assert caught.value.problem.reason is Reason.SNAPSHOT_NOT_UPLOADED
        assert planted.has_fired
        planted.release()
        stored = await send(here, directory)
        await verify_stored_deeply(here.worker.ports.stores, stored.uri)
        before, after = here.world.files_below(directory), await fetch(here, directory)
        assert after == before

    run(life)


@pytest.mark.parametrize("method", ["put", "put_part_of"])
def test_an_answer_that_is_lost_after_the_effect_costs_nothing_but_a_try(method):
    async def life(here):
        directory = await make(here)
        lost = here.plant(fault(Halfway(at="stored", error=STORE), method=method))
        with pytest.raises(ProblemError, match="SnapshotNotUploaded"):
            await send(here, directory)
        assert lost.has_fired
        calls = len(here.world.ledger.calls)
        await send(here, directory)
        again = [call.method for call in here.world.ledger.calls[calls:] if call.port == "stores"]
        assert again.count("put_part_of") < CHUNKS
        assert again.count("put") == (0 if method == "put" else 1)

    run(life)


def test_a_slow_store_takes_its_time_and_one_that_is_too_slow_is_not_waited_for():
    async def life(here):
        directory = await make(here)
        here.plant(fault(Slow(7.0), method="put"))
        began = trio.current_time()
        await send(here, directory)
        assert trio.current_time() - began == pytest.approx(7.0)
        slow = here.plant(Fault(id="g", when=When(port="stores", method="list"), what=Slow(10_000)))
        with pytest.raises(ProblemError, match="does not answer"):
            await send(here, directory)
        assert slow.has_fired

    run(life)


@pytest.mark.parametrize("lie", ["flipped", "empty", "short"])
def test_a_lie_about_the_manifest_that_was_put_is_mended_by_the_next_upload(lie):
    async def life(here):
        directory = await make(here)
        told = here.plant(fault(Lie(lie), method="get", nth=2))
        with pytest.raises(ProblemError, match="SnapshotNotUploaded"):
            await send(here, directory)
        assert told.has_fired
        await send(here, directory)

    run(life)


@pytest.mark.parametrize(
    ("what", "when", "reason"),
    [
        (Fail(STORE), {"method": "get_into"}, Reason.STORE_UNREACHABLE),
        (Fail("ENOENT"), {"method": "get_into"}, Reason.SNAPSHOT_CORRUPT),
        (Fail("ENOSPC"), {"method": "get_into"}, Reason.INSUFFICIENT_DISK),
        (Fail("EROFS"), {"method": "get_into"}, Reason.STATE_UNWRITABLE),
        (Hang(), {"method": "get_into"}, Reason.STORE_UNREACHABLE),
        (Lie(), {"method": "get_into"}, Reason.SNAPSHOT_CORRUPT),
        (Fail(STORE), {"method": "get"}, Reason.STORE_UNREACHABLE),
        (Fail("ENOENT"), {"method": "get"}, Reason.SNAPSHOT_MISSING),
        (Lie("short"), {"method": "get"}, Reason.SNAPSHOT_CORRUPT),
        (Fail(STORE), {"method": "list"}, Reason.STORE_UNREACHABLE),
        (Lie("none"), {"method": "list"}, Reason.SNAPSHOT_CORRUPT),
    ],
)
def test_a_download_that_fails_leaves_no_snapshot_and_has_its_reason(what, when, reason):
    async def life(here):
        directory = await make(here)
        await send(here, directory)
        planted = here.plant(fault(what, **when))
        with pytest.raises(ProblemError) as caught:
            await fetch(here, directory)
        assert caught.value.problem.reason is reason
        assert planted.has_fired
        assert MANIFEST_NAME not in here.world.files_below(directory.with_name("there"))
        planted.release()
        assert await fetch(here, directory) == here.world.files_below(directory)

    run(life)


def test_what_a_store_spoils_afterwards_is_noticed():
    async def life(here):
        directory = await make(here)
        await send(here, directory)
        key = f"{STORE_URI}/{UID}/chunks/{blake3(bytes(range(10))).hexdigest()}"
        here.world.objects.flip(key, at_bytes=3)
        with pytest.raises(ProblemError, match="SnapshotCorrupt"):
            await fetch(here, directory)
        here.world.objects.cut(key, 9)
        with pytest.raises(ProblemError, match="SnapshotCorrupt"):
            await fetch(here, directory)

    run(life)


async def four(here):
    """Four snapshots there, each with chunks of its own, and some that all have."""
    for n, name in enumerate(NAMES):
        await send(here, await make(here, name, bytes(range(20)) + bytes([100 + n]) * 10))


async def prune(here):
    return await prune_stored(here.worker.ports.stores, f"{STORE_URI}/{UID}", proven=NAMES[3])


async def whole(here):
    """The ids of the snapshots that are whole; there must be no others."""
    found = await list_stored(here.worker.ports.stores, STORE_URI)
    for each in found:
        await verify_stored_deeply(here.worker.ports.stores, each.uri)
    return [each.uri.rpartition("/")[2] for each in found]


async def reason_of(awaitable):
    try:
        await awaitable
    except ProblemError as error:
        return error.problem.reason
    return None


PRUNING = [
    (what, method, nth)
    for method, kinds, count in (
        ("remove", (Fail(STORE), Lie(), Halfway(at="removed", error=STORE)), 4),
        ("list", (Fail(STORE), Lie("none")), 2),
        ("get", (Fail(STORE), Fail("ENOENT"), Lie("short"), Lie("flipped"), Lie("empty")), 7),
    )
    for what in kinds
    for nth in range(1, count + 1)
]


@pytest.mark.parametrize(("what", "method", "nth"), PRUNING)
def test_whatever_fails_in_a_pruning_every_snapshot_that_is_left_is_whole(what, method, nth):
    async def life(here):
        await four(here)
        planted = here.plant(fault(what, method=method, nth=nth))
        assert await reason_of(prune(here)) in {
            None, Reason.STORE_UNREACHABLE, Reason.SNAPSHOT_CORRUPT, Reason.SNAPSHOT_MISSING
        }  # fmt: skip
        assert planted.has_fired
        left = await whole(here)
        assert set(left) >= {NAMES[2], NAMES[3]}
        await prune(here)
        assert await whole(here) == NAMES[2:]
        assert len(here.world.objects.content) == 2 + 2 + 4

    run(life)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", range(1, 5))
def test_whenever_the_worker_is_killed_in_a_pruning_every_snapshot_that_is_left_is_whole(nth, after):
    async def life(here):
        await four(here)
        planted = here.plant(fault(Kill(after=after), method="remove", nth=nth))
        await killed_in(here, prune)
        assert planted.has_fired
        await here.start()
        assert set(await whole(here)) >= {NAMES[2], NAMES[3]}
        await prune(here)
        assert await whole(here) == NAMES[2:]

    run(life)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("method", "nth"), [("put_part_of", 1), ("put_part_of", 4), ("put", 1)])
def test_whenever_the_worker_is_killed_in_an_upload_the_next_life_goes_on_with_it(method, nth, after):
    async def life(here):
        directory = await make(here)
        planted = here.plant(fault(Kill(after=after), method=method, nth=nth))
        await killed_in(here, send, directory)
        assert planted.has_fired
        there = [key for key in here.world.objects.content if "/chunks/" in key]
        await here.start()
        assert await whole(here) == ([directory.name] if method == "put" and after else [])
        calls = len(here.world.ledger.calls)
        await send(here, directory)
        sent = [call for call in here.world.ledger.calls[calls:] if call.method == "put_part_of"]
        assert len(sent) == CHUNKS - len(there)
        assert await whole(here) == [directory.name]

    run(life)


async def killed_in(here, act, *args):
    """Do something in a task of the life that is killed in it."""

    async def until_killed():
        with trio.CancelScope() as scope:
            scopes.append(scope)
            try:
                await act(here, *args)
            except BaseException as error:
                if "Fenced" not in repr(error):
                    raise

    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_killed)
        await here.worker.ended.wait()
        await here.worker.unwound.wait()


def test_every_lie_about_a_store_is_about_a_method_that_is_there():
    assert [name for port, name in LIES if port == "stores" and not hasattr(SnapshotStore, name)] == []
