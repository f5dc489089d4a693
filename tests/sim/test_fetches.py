"""Actors that start from a snapshot in a simulated store: whole and once, or not at all and with a reason."""

import pytest
import trio

from actors.manifest import MANIFEST_NAME
from sim.documents import counter
from sim.faults import Fail, Fault, Hang, Kill, When
from sim.world import scenery
from statemachine.problem import ProblemError
from statemachine.states import State
from tests.sim.storing import GPUS, TO_STORE, counts_on, of_stores, on_gpus, scene, started, stored_at


def test_a_stored_snapshot_is_started_from_on_a_worker_that_has_nothing_of_it():
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        went_on = counts_on(here)
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.wait(State.RUNNING, "b1")
        await trio.sleep(1)
        counts_on(here, went_on, "b1")
        status = await here.status("b1")
        assert status["lastGoodSnapshot"]["uri"] == status["lastGoodSnapshot"]["storedUri"] == uri


def test_a_stored_snapshot_of_an_actor_with_gpus_is_started_from():
    @scene(GPUS)
    async def _(here):
        await started(here, on_gpus("a1", 2, **TO_STORE))
        await here.suspend()
        uri = await stored_at(here)
        await here.submit(on_gpus("b1", 2, snapshot={"uri": uri}))
        (main,) = (await here.wait(State.RUNNING, "b1"))["containers"]
        assert len(main["gpus"]) == 2


def test_suspended_first_from_a_store_is_fetched_once_and_only_when_it_is_to_run():
    async def life(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        await here.submit(counter("b1", state="Suspended", snapshot={"uri": uri}))
        await here.wait(State.SUSPENDED, "b1")
        assert not here.world.files_below(here.world.state.actor("b1").snapshots)
        await here.resume("b1")
        (name,) = {each.split("/")[0] for each in here.world.files_below(here.world.state.actor("b1").snapshots)}
        assert uri.endswith(name)
        fetched = len([call for call in here.world.ledger.calls if call.method == "get_into"])
        assert fetched
        # Ended in another way than by a suspend, it goes on from what was fetched.
        here.world.kill_sandbox("b1")
        await here.until(State.FAILED, "b1")
        await here.resume("b1")
        assert len([call for call in here.world.ledger.calls if call.method == "get_into"]) == fetched

    scene()(life)


def test_a_start_that_fails_after_the_snapshot_was_fetched_is_suspended_again():
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        here.plant(Fault(id="fails", when=When(port="processes", method="run", argument=" restore "), what=Fail("EIO")))
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.until(State.SUSPENDED, "b1")
        await here.resume("b1")
        assert (await here.status("b1"))["error"] is None


def test_a_copy_that_was_damaged_here_is_found_and_fetched_again_at_the_next_try():
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.wait(State.RUNNING, "b1")
        here.world.kill_sandbox("b1")
        await here.until(State.FAILED, "b1")
        pages = here.world.state.actor("b1").snapshot(uri.rsplit("/", 1)[1]) / "pages.img"
        content = here.world.read(pages)
        scenery.put_file(here.world.disk, pages, bytes((content[0] ^ 1,)) + content[1:])
        with pytest.raises(ProblemError):
            await here.resume("b1")
        status = await here.status("b1")
        assert (status["state"], status["error"]["reason"]) == ("Suspended", "SnapshotCorrupt")
        await here.resume("b1")


def test_a_store_that_is_down_when_a_snapshot_is_fetched_leaves_the_actor_suspended_with_the_reason():
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        await here.submit(counter("b1", state="Suspended", snapshot={"uri": uri}))
        await here.wait(State.SUSPENDED, "b1")
        here.plant(Fault(id="down", when=of_stores("get_into", times_max=1), what=Fail("StoreError")))
        with pytest.raises(ProblemError):
            await here.resume("b1")
        status = await here.status("b1")
        assert (status["state"], status["error"]["reason"]) == ("Suspended", "StoreUnreachable")
        assert not here.world.files_below(here.world.state.actor("b1").snapshots)
        await here.resume("b1")


@pytest.mark.parametrize(("spoil", "reason"), [("cut", "SnapshotCorrupt"), ("drop", "SnapshotMissing")])
def test_a_stored_snapshot_that_is_not_whole_is_refused_at_admission(spoil, reason):
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        objects = here.world.objects
        if spoil == "cut":
            chunk = next(each for each in objects.content if "/chunks/" in each)
            objects.cut(chunk, len(objects.content[chunk]) - 1)
        else:
            del objects.content[f"{uri}/{MANIFEST_NAME}"]
        with pytest.raises(ProblemError) as caught:
            await here.submit(counter("b1", state="Suspended", snapshot={"uri": uri}))
        assert str(caught.value.problem.reason) == reason


def test_a_bit_that_flipped_in_the_store_is_found_before_anything_is_created():
    @scene()
    async def _(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        here.world.objects.flip(max(here.world.objects.content, key=lambda each: len(here.world.objects.content[each])))
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.until(State.SUSPENDED, "b1")
        assert (await here.status("b1"))["error"]["reason"] == "SnapshotCorrupt"
        assert here.world.sandboxes_of("b1") == []


@pytest.mark.parametrize("how", ["stop", "drain", "kill"])
def test_who_is_cut_off_while_fetching_leaves_nothing_of_it(how):
    async def life(here):
        await started(here)
        await here.suspend()
        uri = await stored_at(here)
        hanging = here.plant(Fault(id="hang", when=of_stores("get_into", nth=1), what=Hang()))
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.until(State.RESTORING, "b1")
        await trio.sleep(5)
        if how == "stop":
            await here.stop("b1")
        elif how == "drain":
            await here.drain()
        else:
            await here.restart()
        hanging.release()
        assert not here.world.files_below(here.world.state.actor("b1").snapshots)

    scene()(life)


@pytest.mark.parametrize("part", range(3))
def test_a_supervisor_that_is_killed_anywhere_in_a_fetch_has_lost_nothing(part):
    async def begun(here):
        await started(here)
        await here.suspend()
        return await stored_at(here)

    async def whole_life(here):
        uri = await begun(here)
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.wait(State.RUNNING, "b1")

    async def cut_life(here):
        uri = await begun(here)
        went_on = counts_on(here)
        await here.submit(counter("b1", snapshot={"uri": uri}))
        await here.worker.ended.wait()
        await here.start()
        assert (await here.status("b1"))["state"] in {"Failed", "Suspended", "Running"}
        await here.ask("resume", uid="b1")
        await here.wait(State.RUNNING, "b1")
        await trio.sleep(1)
        numbers = [int(each) for each in here.output("b1")]
        # What was restored before it was killed has counted, too.
        again = len(numbers) - 1 - numbers[::-1].index(went_on)
        assert numbers[again:] == list(range(went_on, went_on + len(numbers) - again))

    calls = scene()(whole_life).calls
    begins = next(call.number for call in calls if call.method == "get_into")
    of_fetch = [
        call.number
        for call in calls
        if call.number >= begins - 10 and ("actors/b1/snapshots" in call.argument or call.port == "stores")
    ]
    assert len(of_fetch) > 12
    for number in of_fetch[part::3]:
        for what in (Kill(), Kill(after=True)):
            kill = Fault(id=f"at {number}", when=When(number=number), what=what)
            record = scene(faults=[kill])(cut_life)
            assert [len(report.fired) for report in record.faults] == [1], kill
