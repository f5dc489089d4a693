"""Uploads over the ends of lives: of actors that are terminated, begin anew, get a new generation, or are drained."""

import anyio
import pytest

from statemachine.reasons import Reason
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


async def test_an_upload_goes_on_when_its_actor_is_terminated_and_its_status_says_where_it_is(monkeypatch):
    async with a_stand() as stand:
        gate = Gate(stand).close(monkeypatch)
        snapshot = await suspended(stand)
        await gate.reached.wait()
        await stand.submit(generation=2, spec__desiredState="Terminated", **TO_STORE)
        await stand.life().ended.wait()
        gate.opened.set()
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]
        assert stand.status()["state"] == "Terminated"
        assert stand.status()["lastGoodSnapshot"]["storedUri"] == f"{STORE}/a1/{snapshot.id}"


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_an_actor_that_ended_and_began_anew_meanwhile_learns_where_its_snapshot_is(
    monkeypatch, pauses, is_under_way
):
    async with a_stand() as stand:
        gate = Gate(stand).close(monkeypatch)
        if not is_under_way:
            stand.ports.stores.failures["list"] = "down"
            pauses.lasts = anyio.Event()
        snapshot = await suspended(stand)
        if is_under_way:
            await gate.reached.wait()
        await stand.submit(generation=2, spec__desiredState="Terminated", **TO_STORE)
        await stand.life().ended.wait()
        await stand.running(generation=3, **TO_STORE)
        assert stand.life().actor.last_good.id == snapshot.id
        stand.ports.stores.failures.clear()
        for event in (gate.opened, pauses.lasts):
            if event is not None:
                event.set()
        await uploaded(stand)
        assert stand.life().actor.last_good.stored_uri == f"{STORE}/a1/{snapshot.id}"
        assert b'"SnapshotUploaded"' in stand.files.content[STATE.actor("a1").journal]


async def test_what_the_next_life_of_an_actor_has_saved_is_what_is_uploaded_of_it(pauses):
    async with a_stand() as stand:
        stand.ports.stores.failures["list"] = "down"
        pauses.lasts = anyio.Event()
        await suspended(stand)
        await stand.submit(generation=2, spec__desiredState="Terminated", **TO_STORE)
        await stand.life().ended.wait()
        await stand.running(generation=3, **TO_STORE)
        second = await suspended_again(stand, await a_snapshot_of(stand, 2))
        stand.ports.stores.failures.clear()
        pauses.lasts.set()
        await uploaded(stand)
        assert stored(stand) == [second.id]
        assert stand.life().actor.last_good.stored_uri == f"{STORE}/a1/{second.id}"


async def test_the_next_life_of_an_actor_knows_where_its_snapshot_was_stored():
    async with a_stand() as stand:
        snapshot = await suspended(stand)
        await uploaded(stand)
        await stand.submit(generation=2, spec__desiredState="Terminated", **TO_STORE)
        await stand.life().ended.wait()
        done = list(stand.ports.stores.done)
        await stand.running(generation=3, **TO_STORE)
        assert stand.life().actor.last_good.id == snapshot.id
        assert stand.life().actor.last_good.stored_uri == f"{STORE}/a1/{snapshot.id}"
        await settled()
        assert stand.ports.stores.done == done


async def test_a_life_that_finds_the_snapshot_of_one_before_the_last_looks_whether_it_is_stored():
    async with a_stand() as stand:
        snapshot = await suspended(stand)
        await uploaded(stand)
        for generation in (2, 4):
            await stand.submit(generation=generation, spec__desiredState="Terminated", **TO_STORE)
            await stand.life().ended.wait()
            how = {"spec__snapshot": {"from": "None"}} if generation == 2 else {}
            await stand.running(generation=generation + 1, **how, **TO_STORE)
        assert stand.life().actor.origin.id == snapshot.id
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]
        assert stand.life().actor.last_good.stored_uri == f"{STORE}/a1/{snapshot.id}"


async def test_a_drain_looks_at_every_actor_once_more_before_it_waits_for_uploads(monkeypatch):
    async with a_stand() as stand:
        monkeypatch.setattr(stand.worker.uploads, "consider", lambda _life: None)
        snapshot = await suspended(stand)
        monkeypatch.undo()
        await stand.drain()
        await stand.worker.uploads.finish()
        assert stored(stand) == [snapshot.id]


async def test_a_new_generation_with_another_store_is_followed_and_the_old_trouble_forgotten(pauses):
    async with a_stand() as stand:
        stand.ports.stores.failures["put"] = "down"
        pauses.lasts = anyio.Event()
        snapshot = await suspended(stand)
        await settled()
        assert stand.life().actor.problem.reason is Reason.SNAPSHOT_NOT_UPLOADED
        elsewhere = {"spec__desiredState": "Suspended", "spec__suspend": {"uri": "gs://other/place"}}
        await stand.submit(generation=2, **elsewhere)
        assert stand.life().actor.problem is None
        del stand.ports.stores.failures["put"]
        pauses.lasts.set()
        await uploaded(stand)
        assert stand.life().actor.last_good.stored_uri == f"gs://other/place/a1/{snapshot.id}"
