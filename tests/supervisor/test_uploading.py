"""Uploads beside the actors: when one begins, what is told of it, how it is tried again, and what it keeps in place."""

import errno
from pathlib import Path

import anyio
import attrs
import pytest

from actors.manifest import CHECKPOINT_FILES
from actors.snapshots import prune
from actors.stores import snapshot_uri, upload
from statemachine import commands as c
from statemachine import events as e
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations, uploading
from supervisor.uploading import DELAY_MAX_S, UPLOADS_MAX
from tests.fakes.performer import a_problem
from tests.supervisor.lives import settled
from tests.supervisor.stands import STATE, a_stand
from tests.supervisor.storing import (
    STORE,
    TO_STORE,
    Gate,
    a_snapshot_of,
    paused,
    stored,
    suspended,
    suspended_again,
    uploaded,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    return paused(monkeypatch)


async def test_a_suspended_actor_is_in_its_store_and_its_status_and_journal_say_where():
    async with a_stand() as stand:
        snapshot = await suspended(stand)
        await uploaded(stand)
        uri = f"{STORE}/a1/{snapshot.id}"
        assert stored(stand) == [snapshot.id]
        assert stand.status()["lastGoodSnapshot"] == {
            "id": snapshot.id, "uri": snapshot.uri, "createdAt": "1970-01-01T00:00:01.000Z", "storedUri": uri,
        }  # fmt: skip
        assert stand.status()["error"] is None
        assert b'"SnapshotUploaded"' in stand.files.content[STATE.actor("a1").journal]


async def test_an_actor_whose_document_names_no_store_goes_to_the_workers_or_nowhere():
    async with a_stand(snapshot_store=STORE) as stand:
        snapshot = await suspended(stand, spec__suspend={})
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]
    async with a_stand() as stand:
        await suspended(stand, spec__suspend={})
        await settled()
        assert stand.ports.stores.done == []


async def test_nothing_is_uploaded_before_the_sandbox_is_ended(monkeypatch):
    async with a_stand() as stand:
        await stand.running(**TO_STORE)
        snapshot = await a_snapshot_of(stand)
        performer = stand.performers["a1"]
        performer.answers[c.SaveSnapshot] = e.SnapshotProven(snapshot=snapshot)
        hold = performer.hold(c.ReleaseSandbox)
        await operations.suspend(stand.worker, "a1")
        await hold.begun.wait()
        await settled()
        assert stand.ports.stores.done == []
        hold.let_go()
        await stand.until(State.SUSPENDED)
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]


async def test_a_snapshot_that_was_given_is_not_uploaded(logs):
    async with a_stand() as stand:
        given = await a_snapshot_of(stand, directory=Path("/elsewhere/one"))
        await stand.running(spec__snapshot={"uri": given.uri}, **TO_STORE)
        await settled()
        assert stand.ports.stores.content == {}
        assert [each for each in logs if each["event"] == "not_uploaded"] == []


async def test_an_upload_that_fails_is_told_and_tried_again_ever_more_slowly_until_it_is_done(pauses, logs):
    async with a_stand() as stand:
        stand.ports.stores.failures["put"] = "there is no such bucket"
        pauses.lasts = anyio.Event()
        snapshot = await suspended(stand)
        await settled()
        error = stand.status()["error"]
        assert error["reason"] == "SnapshotNotUploaded"
        assert "there is no such bucket" in error["message"]
        pauses.lasts.set()
        with anyio.fail_after(60):
            while len(pauses.all) < 9:
                await anyio.lowlevel.checkpoint()
        assert pauses.all[:9] == [1, 2, 4, 8, 16, 32, DELAY_MAX_S, DELAY_MAX_S, DELAY_MAX_S]
        journal = stand.files.content[STATE.actor("a1").journal]
        assert journal.count(b'"UploadFailed"') == 1
        del stand.ports.stores.failures["put"]
        await uploaded(stand)
        assert stand.status()["error"] is None
        assert stored(stand) == [snapshot.id]
        assert next(each for each in logs if each["event"] == "not_uploaded")["in_s"] == 1


async def test_nothing_is_read_here_for_a_store_that_is_down(pauses):
    async with a_stand() as stand:
        stand.ports.stores.failures["get"] = "down"
        stand.files.failures["digest_parts", Path("*")] = errno.EIO
        pauses.lasts = anyio.Event()
        snapshot = await suspended(stand)
        await settled()
        assert "down" in stand.life().actor.problem.message
        stand.ports.stores.failures.clear()
        stand.files.failures.clear()
        pauses.lasts.set()
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]


@pytest.mark.parametrize("refused", ["put_part_of", "put"])
async def test_a_snapshot_is_read_once_however_often_its_store_refuses_it(pauses, monkeypatch, refused):
    async with a_stand() as stand:
        read, digest_parts = [], stand.files.digest_parts

        async def reading(path, **options):
            read.append(path.name)
            return await digest_parts(path, **options)

        monkeypatch.setattr(stand.files, "digest_parts", reading)
        stand.ports.stores.failures[refused] = "denied"
        snapshot = await suspended(stand)
        with anyio.fail_after(60):
            while len(pauses.all) < 5:
                await anyio.lowlevel.checkpoint()
        stand.ports.stores.failures.clear()
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]
        assert sorted(read) == sorted(CHECKPOINT_FILES)


async def test_a_snapshot_that_is_damaged_between_two_tries_does_not_reach_its_store(pauses):
    async with a_stand() as stand:
        stand.ports.stores.failures["put_part_of"] = "denied"
        pauses.lasts = anyio.Event()
        snapshot = await suspended(stand)
        await settled()
        for name in CHECKPOINT_FILES:  # all of them: their content is the same, so that one chunk would do for all
            stand.files.put(STATE.actor("a1").snapshot(snapshot.id) / name, b"pagE")
        stand.ports.stores.failures.clear()
        pauses.lasts.set()
        await uploaded(stand)
        assert stand.life().actor.problem.reason is Reason.SNAPSHOT_CORRUPT
        assert stored(stand) == []


async def test_a_snapshot_that_is_whole_in_its_store_already_is_only_looked_at():
    async with a_stand() as stand:
        await stand.running(**TO_STORE)
        snapshot = await a_snapshot_of(stand)
        uri = snapshot_uri(STORE, "a1", snapshot.id)
        await upload(stand.files, stand.ports.stores, STATE.actor("a1").snapshot(snapshot.id), uri)
        del stand.ports.stores.done[:]
        await suspended_again(stand, snapshot)
        await uploaded(stand)
        assert stand.life().actor.last_good.stored_uri == uri
        assert {operation for operation, _ in stand.ports.stores.done} <= {"get", "list"}


async def test_a_trouble_of_the_actors_own_stands_beside_an_upload_that_fails(pauses):
    async with a_stand() as stand:
        stand.ports.stores.failures["list"] = "down"
        await suspended(stand)
        performer = stand.performers["a1"]
        refused = a_problem(Reason.SNAPSHOT_INCOMPATIBLE)
        performer.answers[c.RestoreSandbox] = e.RestoreRefused(problem=refused)
        await operations.resume(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        await settled()
        assert stand.life().actor.problem == refused
        del stand.ports.stores.failures["list"]
        await uploaded(stand)
        assert stand.life().actor.problem == refused
        assert stand.life().actor.last_good.stored_uri


async def test_an_actor_is_resumed_and_suspended_again_while_its_snapshot_is_on_its_way(monkeypatch):
    async with a_stand() as stand:
        gate = Gate(stand).close(monkeypatch)
        first = await suspended(stand)
        await gate.reached.wait()
        assert stand.worker.uploads.under_way("a1") == {first.id}
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)
        second = await suspended_again(stand, await a_snapshot_of(stand, 2))
        gate.opened.set()
        await uploaded(stand)
        assert stored(stand) == [first.id, second.id]
        assert stand.life().actor.last_good.stored_uri.endswith(second.id)
        assert stand.worker.uploads.under_way("a1") == frozenset()


async def test_of_what_waits_only_the_newest_is_uploaded(pauses):
    async with a_stand() as stand:
        stand.ports.stores.failures["put"] = "down"
        pauses.lasts = anyio.Event()
        await suspended(stand)
        await settled()
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)
        second = await suspended_again(stand, await a_snapshot_of(stand, 2))
        del stand.ports.stores.failures["put"]
        pauses.lasts.set()
        await uploaded(stand)
        assert stored(stand) == [second.id]


async def test_a_snapshot_is_not_pruned_while_it_is_uploaded(monkeypatch):
    async with a_stand() as stand:
        gate = Gate(stand).close(monkeypatch)
        first = await suspended(stand)
        await gate.reached.wait()
        for number in (2, 3, 4):
            await a_snapshot_of(stand, number)
        snapshots = STATE.actor("a1").snapshots
        stage = stand.performers["a1"].stage
        newest = f"s{4:016x}"
        await prune(stand.files, snapshots, proven=newest, in_use=stage.uploading())
        left = {path.name for path in stand.files.content if path.parent == snapshots}
        assert left == {first.id, f"s{3:016x}", newest}
        gate.opened.set()
        await uploaded(stand)
        assert stage.uploading() == frozenset()


async def test_a_snapshot_that_has_gone_or_is_damaged_is_told_and_not_tried_again(pauses, logs):
    async with a_stand() as stand:
        await stand.running(**TO_STORE)
        snapshot = await a_snapshot_of(stand)
        stand.files.put(STATE.actor("a1").snapshot(snapshot.id) / "pages.img", b"pagE")
        await suspended_again(stand, snapshot)
        await uploaded(stand)
        assert stand.life().actor.problem.reason is Reason.SNAPSHOT_CORRUPT
        assert pauses.all == []
        assert stored(stand) == []
        assert [each["in_s"] for each in logs if each["event"] == "not_uploaded"] == [None]


async def test_only_so_many_are_uploaded_at_once(monkeypatch):
    async with a_stand() as stand:
        gate = Gate(stand).close(monkeypatch)
        for number, uid in enumerate("abcd", start=1):
            await suspended(stand, number, uid)
        await gate.reached.wait()
        await settled()
        under_way = [uid for uid in "abcd" if stand.worker.uploads.under_way(uid)]
        assert len(under_way) == UPLOADS_MAX
        assert stand.worker.uploads.left == ("a", "b", "c", "d")
        gate.opened.set()
        await uploaded(stand)
        assert [stored(stand, uid) for uid in "abcd"] == [[f"s{number:016x}"] for number in (1, 2, 3, 4)]


async def test_what_a_fault_of_ours_does_to_an_upload_is_told_of_its_actor_alone(monkeypatch, pauses):
    async def broken(*_values, **_named):
        raise KeyError("a fault")

    async with a_stand() as stand:
        pauses.lasts = anyio.Event()
        monkeypatch.setattr(uploading, "upload", broken)
        await suspended(stand)
        await settled()
        problem = stand.life().actor.problem
        assert problem.reason is Reason.SNAPSHOT_NOT_UPLOADED
        assert "KeyError" in problem.message
        await stand.running("a2")


async def test_older_ones_are_removed_from_the_store_only_after_a_newer_one_is_whole_there():
    async with a_stand() as stand:
        for number in (1, 2, 3):
            if number == 1:
                await suspended(stand)
            else:
                await operations.resume(stand.worker, "a1")
                await stand.until(State.RUNNING)
                await suspended_again(stand, await a_snapshot_of(stand, number))
            await uploaded(stand)
        assert stored(stand) == [f"s{number:016x}" for number in (2, 3)]
        done = stand.ports.stores.done
        last_put = done.index(("put", f"{STORE}/a1/s{3:016x}/manifest.json"))
        assert all(operation != "remove" for operation, _ in done[:last_put])


async def test_a_retention_that_fails_is_told_in_the_log_and_the_snapshot_is_stored_all_the_same(monkeypatch, logs):
    async def broken(*_values, **_named):
        raise KeyError("a fault")

    async with a_stand() as stand:
        monkeypatch.setattr(uploading, "prune_stored", broken)
        snapshot = await suspended(stand)
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]
        assert stand.life().actor.last_good == attrs.evolve(snapshot, stored_uri=f"{STORE}/a1/{snapshot.id}")
        assert [each["reason"] for each in logs if each["event"] == "fault"] == ["Internal"]
