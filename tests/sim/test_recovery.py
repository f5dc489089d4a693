"""What a restarted supervisor finds alive or half done, and what it does with it: docs/recovery.md, row by row."""

import signal

import pytest
import trio

from sim.documents import actor, container, counter
from sim.engine import run
from sim.faults import Fail, Fault, Kill, When
from sim.invariants.standing import not_gone_on_with, standing_in
from sim.lives import LIVES
from sim.walker import How, points_of, walk_to
from statemachine.actor import OnDrain
from statemachine.states import State
from supervisor import recovering
from tests.sim.restarts import activation_of, counts_from_zero, killed_while_running, scene, suspended_until_dead, until

# ---- alive


def test_a_running_actor_goes_on_as_if_nothing_had_been():
    @scene()
    async def _(here):
        await killed_while_running(here)
        record, _ = activation_of(here)
        counted = counts_from_zero(here)
        await trio.sleep(1)  # its output goes on while there is nobody
        await here.start()
        status = await here.status()
        assert (status["state"], status["error"]) == ("Running", None)
        assert activation_of(here)[0] == record
        assert counts_from_zero(here) > counted + 5
        await here.restart()
        await here.suspend()
        await here.resume()
        await trio.sleep(1)
        counts_from_zero(here)


def test_a_container_that_exits_while_there_is_nobody_is_told_with_its_code():
    @scene()
    async def _(here):
        await killed_while_running(here, actor("a1", container(), container("b", ["sh", "-c", "sleep 1; exit 3"])))
        await trio.sleep(1)
        await here.start()
        await trio.sleep(1)
        status = await here.status()
        assert status["state"] == "Running"
        assert [each["exitCode"] for each in status["containers"]] == [None, 3]


def test_the_last_container_that_exits_while_there_is_nobody_ends_the_actor():
    @scene()
    async def _(here):
        await killed_while_running(here, actor("a1", container(command=["sh", "-c", "sleep 1; exit 0"])))
        await trio.sleep(1)
        await here.start()
        status = await here.wait(State.TERMINATED)
        assert status["error"]["reason"] == "Completed"


def test_a_sandbox_that_dies_after_it_was_taken_over_is_seen_to_die():
    @scene()
    async def _(here):
        await killed_while_running(here)
        await here.start()
        here.world.kill_sandbox("a1")
        status = await here.wait(State.FAILED)
        assert (status["error"]["reason"], here.left()) == ("SandboxDied", [])


def test_what_is_not_in_a_restored_sandbox_is_in_the_next_snapshot_all_the_same():
    @scene()
    async def _(here):
        await here.submit(actor("a1", container(), container("once", ["sh", "-c", "sleep 0.1; exit 0"])))
        await here.wait(State.RUNNING)
        await trio.sleep(0.5)
        for _ in range(2):
            await here.suspend()
            await here.resume()
            await here.restart()
        status = await here.suspend()
        assert [each["exitCode"] for each in status["containers"]] == [None, 0]


def test_a_container_whose_file_server_says_nothing_is_watched_by_other_means_after_a_restart_too():
    """A probe that could not be started once: from then on its gofer outlives it."""

    @scene()
    async def _(here):
        probe = {"exec": ["no-such-program"], "timeoutSeconds": 1}
        await here.submit(actor("a1", container("a", ["sh", "-c", "sleep 4; exit 5"], wakeupProbe=probe), container()))
        await here.reach(State.VERIFYING)
        await trio.sleep(0.5)
        record, _ = activation_of(here)
        assert record["belongings"]["doubted"] == ["a"]


# ---- half done


def test_a_suspend_without_its_manifest_is_undone_and_can_be_asked_for_again():
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        await here.restart()
        status = await here.wait(State.RUNNING)
        assert status["error"]["reason"] == "SupervisorRestarted"
        assert "its sandbox lives on" in status["error"]["message"]
        await trio.sleep(0.5)
        counted = counts_from_zero(here)
        assert (await here.suspend())["error"] is None
        await here.resume()
        await trio.sleep(0.5)
        assert counts_from_zero(here) > counted


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_suspend_with_its_manifest_goes_to_its_end(is_alive):
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        here.plant(
            Fault(
                id="crash",
                when=When(port="files", method="replace", argument=r"manifest\.json$"),
                what=Kill(after=True),
            )
        )
        await suspended_until_dead(here)
        if not is_alive:
            here.world.kill_sandbox("a1")
        await here.start()
        status = await here.wait(State.SUSPENDED)
        assert (status["error"], here.left()) == (None, [])
        assert (await here.suspend())["lastGoodSnapshot"] == status["lastGoodSnapshot"]
        await here.resume()


def test_a_sandbox_that_was_frozen_when_nothing_could_be_written_down_runs_again():
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        for method in ("append", "append_durably"):
            here.plant(
                Fault(
                    id=method,
                    when=When(port="files", method=method, argument=r"journal\.jsonl$", incarnation=1),
                    what=Fail("ENOSPC"),
                )
            )
        crash_here = When(port="processes", method="run", argument=" checkpoint ")
        here.plant(Fault(id="crash", when=crash_here, what=Kill()))
        await suspended_until_dead(here)
        assert [line["to"] for line in here.journal() if "to" in line][-1] == "Running"
        await here.start()
        status = await here.wait(State.RUNNING)
        assert status["error"]["reason"] == "SupervisorRestarted"


@pytest.mark.parametrize("state", [State.CREATING, State.VERIFYING])
def test_a_start_that_was_not_finished_is_undone(state):
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.reach(state)
        await here.restart()
        status = await here.wait(State.FAILED)
        assert (status["error"]["reason"], here.left()) == ("SupervisorRestarted", [])


def test_a_restore_that_was_not_finished_leaves_the_actor_suspended():
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDED)
        await here.ask("resume", uid="a1")
        await here.until(State.RESTORING)
        await here.restart()
        status = await here.wait(State.SUSPENDED)
        assert (status["error"]["reason"], here.left()) == ("SupervisorRestarted", [])
        await here.resume()


def test_an_end_that_was_begun_is_finished():
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.reach(State.STOPPING)
        await here.restart()
        await here.wait(State.TERMINATED)
        assert here.left() == []


# ---- a drain, and faults


def test_who_asks_for_the_end_while_much_is_recovered_gets_all_of_it_suspended():
    @scene()
    async def _(here):
        uids = [f"a{number}" for number in range(20)]
        for uid in uids:
            await here.submit(counter(uid))
        for uid in uids:
            await here.wait(State.RUNNING, uid)
        here.kill()
        worker = here.world.start(on_drain=OnDrain.SUSPEND)
        await until(lambda: here.world.hearing.moves[-1].incarnation == worker.number)
        worker.signal(signal.SIGTERM)
        await worker.ended.wait()
        assert {here.status_file(uid)["state"] for uid in uids} == {"Suspended"}
        assert here.left() == []


@pytest.mark.parametrize("method", ["reclaim", "run", "read"])
def test_a_fault_while_one_is_taken_over_costs_no_other_one_anything(method):
    @scene()
    async def _(here):
        await killed_while_running(here, counter(), counter("a2"))
        port = "files" if method == "read" else "processes"
        argument = {"read": "/bundles/main/config.json", "run": " list "}.get(method)
        planted = here.plant(
            Fault(
                id="one",
                when=When(port=port, method=method, argument=argument, incarnation=2, nth=1),
                what=Fail("EMFILE"),
            )
        )
        await here.start()
        assert planted.has_fired
        states = sorted([(await here.status(uid))["state"] for uid in ("a1", "a2")])
        assert states == ["Failed", "Running"]


def test_the_walker_sees_a_running_actor_that_is_not_gone_on_with(monkeypatch):
    monkeypatch.setattr(recovering, "LIVE", frozenset())
    life = LIVES["run-stop"]
    points, _ = points_of(life)
    point = next(each for each in points if each.name.endswith(": Verifying -> Running"))
    names = [violation.name for violation in walk_to(life, point, How.AFTER).violations]
    assert "GoesOnWithIt" in names


def test_what_stands_is_known_by_its_activation():
    async def scenario(here):
        await killed_while_running(here)
        standing = standing_in(here.world)
        assert list(standing) == ["a1"]
        await here.start()
        assert list(not_gone_on_with(here.world, standing)) == []
        assert list(not_gone_on_with(here.world, {"a1": "another"})) != []
        assert list(not_gone_on_with(here.world, {"b": "another"})) != []

    run(scenario, seed=1)
