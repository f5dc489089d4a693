"""Snapshots on their way to their store in the simulated world: whatever fails, every upload is completed."""

import pytest
import trio

from actors.manifest import MANIFEST_NAME
from sim.documents import counter
from sim.faults import Fail, Fault, Halfway, Kill, Lie, Slow
from statemachine.actor import OnDrain
from statemachine.states import State
from tests.sim.storing import GPUS, TO_STORE, counts_on, of_stores, on_gpus, scene, started, stored, stored_at

UPLOAD_CALLS = ("list", "put_part_of", "put", "get")


def test_a_suspend_ends_with_the_snapshot_in_its_store_and_the_actor_goes_on_from_here():
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        await stored_at(here)
        assert (await here.status())["error"] is None
        await here.resume()
        await trio.sleep(1)
        counts_on(here)


def test_the_gpus_are_free_before_anything_is_uploaded():
    @scene(GPUS, [Fault(id="slow", when=of_stores("put_part_of"), what=Slow(300))])
    async def _(here):
        await started(here, on_gpus("a1", 1, **TO_STORE))
        await here.suspend()
        assert [gpu["holder"] for gpu in (await here.ask("status"))["worker"]["gpus"]] == [None] * 3
        assert stored(here) == []
        await here.submit(on_gpus("b1", 3))
        await here.wait(State.RUNNING, "b1")
        await stored_at(here)


def test_a_store_that_is_down_for_an_hour_is_told_of_and_gets_its_snapshot_when_it_is_back():
    down = Fault(id="down", when=of_stores(times_max=63), what=Fail("StoreError"))

    @scene(faults=[down])
    async def _(here):
        await started(here)
        await here.suspend()
        await trio.sleep(3000)
        error = (await here.status())["error"]
        assert (error["step"], error["reason"]) == ("suspend", "SnapshotNotUploaded")
        assert len([line for line in here.journal() if line.get("event", {}).get("type") == "UploadFailed"]) == 1
        await trio.sleep(900)
        await stored_at(here)
        assert (await here.status())["error"] is None
        await here.resume()


def test_an_actor_whose_store_is_down_lives_on_and_only_its_newest_snapshot_is_uploaded_in_the_end():
    down = Fault(id="down", when=of_stores(times_max=12), what=Fail("StoreError"))

    @scene(faults=[down])
    async def _(here):
        await started(here)
        for _ in range(3):
            await here.suspend()
            await trio.sleep(20)
            await here.resume()
        await here.suspend()
        await stored_at(here)
        assert len(stored(here)) == 1
        await here.resume()
        await trio.sleep(1)
        counts_on(here)


@pytest.mark.parametrize("method", ["put", "put_part_of"])
def test_a_store_that_truncates_what_it_is_given_does_not_get_away_with_it(method):
    cut = Fault(id="cut", when=of_stores(method, times_max=2), what=Lie())

    @scene(faults=[cut])
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        await here.submit(counter("b1", snapshot={"uri": uri}))
        assert (await here.wait(State.RUNNING, "b1"))["error"] is None


def test_an_actor_is_suspended_again_and_again_while_a_snapshot_is_on_its_way_which_is_not_pruned_under_it():
    slow = Fault(id="slow", when=of_stores("put_part_of"), what=Slow(300))

    async def life(here):
        await started(here)
        await here.suspend()
        first = (await here.status())["lastGoodSnapshot"]["id"]
        for _ in range(3):
            await here.resume()
            await here.suspend()
        assert f"{first}/{MANIFEST_NAME}" in here.world.files_below(here.world.state.actor("a1").snapshots)
        await trio.sleep(400)
        await stored_at(here)
        assert len(stored(here)) == 2
        await here.resume()
        await here.suspend()
        assert f"{first}/{MANIFEST_NAME}" not in here.world.files_below(here.world.state.actor("a1").snapshots)

    record = scene(faults=[slow])(life)
    assert [said for said in record.log if said.event == "not_uploaded"] == []


def uploads_calls():
    """The calls of the stores that one suspend makes, by method, as often as each is made."""
    counted: dict[str, int] = {}

    async def life(here):
        await started(here)
        await here.suspend()
        await stored_at(here)

    for call in scene()(life).calls:
        if call.port == "stores":
            counted[call.method] = counted.get(call.method, 0) + 1
    return counted


def points():
    """Every moment of an upload that can be told apart."""
    made = uploads_calls()
    assert set(made) >= set(UPLOAD_CALLS)
    for method, count in made.items():
        for nth in range(1, count + 1):
            yield from ((method, nth, what) for what in (Kill(), Kill(after=True)))
            if method.startswith("put"):
                yield from ((method, nth, Halfway(part)) for part in ("sent", "stored"))


@pytest.mark.parametrize("part", range(3))
def test_a_supervisor_that_is_killed_anywhere_in_an_upload_completes_it_after_its_next_start(part):
    async def life(here):
        await started(here)
        await here.ask("suspend", uid="a1")
        await here.worker.ended.wait()
        await here.start()
        assert (await here.status())["state"] == "Suspended"
        await stored_at(here)
        await here.resume()
        await trio.sleep(1)
        counts_on(here)

    every = list(points())
    assert len(every) > 30
    for method, nth, what in every[part::3]:
        kill = Fault(id=f"{method} {nth}", when=of_stores(method, nth=nth, incarnation=1), what=what)
        record = scene(faults=[kill])(life)
        assert [len(report.fired) for report in record.faults] == [1], kill


def test_a_drain_waits_for_what_is_being_uploaded():
    @scene(faults=[Fault(id="slow", when=of_stores("put_part_of"), what=Slow(30))])
    async def _(here):
        await started(here)
        await here.restart(on_drain=OnDrain.SUSPEND)
        await here.until(State.RUNNING)
        began_s = trio.current_time()
        await here.drain()
        assert len(stored(here)) == 1
        assert 30 <= trio.current_time() - began_s < 100


def test_a_drain_that_does_not_reach_the_store_leaves_in_its_time_names_the_actor_and_uploads_after_the_next_start():
    down = Fault(id="down", when=of_stores(incarnation=1, times_max=None), what=Fail("StoreError"))

    async def life(here):
        await started(here)
        await here.suspend()
        began_s = trio.current_time()
        await here.drain()
        assert trio.current_time() - began_s < 130
        await here.start()
        await stored_at(here)

    record = scene(faults=[down])(life)
    (said,) = [said for said in record.log if said.event == "drain"]
    assert (said.fields["left"], said.fields["not_uploaded"]) == ([], ["a1"])


def test_an_upload_that_was_not_done_when_its_actor_was_terminated_is_done_after_the_next_start():
    @scene(faults=[Fault(id="down", when=of_stores(incarnation=1, times_max=None), what=Fail("StoreError"))])
    async def _(here):
        await started(here)
        await here.suspend()
        await here.stop()
        await here.restart()
        await stored_at(here)
        assert here.status_file()["lastGoodSnapshot"]["storedUri"] == stored(here)[-1]
