"""The real supervisor's CPU life in the simulated world: what goes well, what fails, and what is left after each."""

import pytest
import trio

from sim.documents import actor, container, counter, idler
from sim.engine import run
from sim.world.runsc.settings import Flavour
from sim.world.world import Machine
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from tests.sim.reachable import BEFORE_THE_END
from tests.sim.restarts import activation_of

FLAVOURS = pytest.mark.parametrize("flavour", Flavour)


def states(record, uid="a1"):
    """The states without repetition of the same one after the other."""
    came = record.states(uid)
    return [state for place, state in enumerate(came) if place == 0 or came[place - 1] != state]


def played(scenario, **options):
    """Run, and see that nothing went wrong inside that nobody was told of."""
    record = run(scenario, **options)
    faults = [said for said in record.log if said.event == "fault" or said.level in {"error", "critical"}]
    assert faults == []
    return record


START = ["Assigned", "Creating", "Verifying", "Running"]


@FLAVOURS
def test_an_actor_starts_counts_is_suspended_resumed_and_stopped(flavour):
    async def life(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        await trio.sleep(1)
        status = await here.suspend()
        assert status["lastGoodSnapshot"] is not None
        assert here.left() == []
        before = len(here.output())
        await trio.sleep(1000)
        assert len(here.output()) == before
        await here.resume()
        await trio.sleep(1)
        await here.stop()
        assert here.left() == []
        assert here.output() == [str(number) for number in range(len(here.output()))]
        assert len(here.output()) > before + 5

    record = played(life, machine=Machine(flavour=flavour))
    assert states(record) == [
        *START,
        *("Suspending", "Releasing", "Suspended", "Assigned", "Restoring", "Verifying", "Running"),
        *("Stopping", "Terminated"),
    ]


@FLAVOURS
def test_an_actor_of_three_containers_goes_through_it_all(flavour):
    async def life(here):
        await here.submit(actor("a1", container("one"), container("two"), container("three")))
        await here.wait(State.RUNNING)
        for _ in range(3):
            await trio.sleep(0.5)
            await here.suspend()
            await here.resume()
        await trio.sleep(0.5)
        await here.stop()
        for name in ("one", "two", "three"):
            output = here.output(container=name)
            assert output == [str(number) for number in range(len(output))]
            assert len(output) > 15

    played(life, machine=Machine(flavour=flavour))


def test_a_command_that_is_not_there_fails_the_actor_and_leaves_nothing():
    async def life(here):
        await here.submit(actor("a1", container(command=["/bin/no-such-thing"])))
        await here.until(State.FAILED)
        status = await here.status()
        assert status["error"]["reason"] == Reason.COMMAND_NOT_FOUND
        assert here.left() == []

    assert states(played(life)) == ["Assigned", "Creating", "RollingBack", "Failed"]


def test_a_container_that_ends_well_ends_the_actor():
    async def life(here):
        await here.submit(actor("a1", container(command=["sh", "-c", "sleep 3; exit 0"])))
        await here.until(State.TERMINATED)
        status = await here.wait(State.TERMINATED)
        assert status["containers"][0]["exitCode"] == 0
        assert here.left() == []

    assert states(played(life)) == [*START, "Stopping", "Terminated"]


def test_a_container_that_fails_is_tried_again_with_growing_pauses_and_then_failed():
    async def life(here):
        failing = container(command=["sh", "-c", "sleep 1; exit 3"])
        await here.submit(actor("a1", failing, restartPolicy="OnFailure"))
        await here.until(State.FAILED)
        assert (await here.status())["error"]["reason"] == Reason.CONTAINER_FAILED
        assert here.left() == []

    record = played(life)
    assert record.states("a1").count("BackingOff") == 5
    pauses_s = [
        round(after.at_s - before.at_s)
        for before, after in zip(record.moves, record.moves[1:], strict=False)
        if before.after == "BackingOff"
    ]
    assert pauses_s == [1, 2, 4, 8, 16]


def test_a_disk_that_is_full_at_the_checkpoint_costs_the_suspend_and_not_the_actor():
    async def life(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        # Room for what is measured before the freeze, and not for what gVisor then writes.
        here.world.fill_disk(slack_bytes=6 << 20)
        await here.until(State.THAWING)
        here.world.make_room()
        await here.until(State.RUNNING)
        status = await here.status()
        assert status["error"]["reason"] == Reason.INSUFFICIENT_DISK
        before = len(here.output())
        await trio.sleep(2)
        assert len(here.output()) > before
        assert here.world.files_below(here.world.state.actor("a1").snapshots) == {}
        await here.suspend()

    record = run(life, machine=Machine(state_bytes=8 << 20))
    assert any(" resume " in call.argument for call in record.calls)
    assert states(record)[3:6] == ["Running", "Suspending", "Thawing"]


def test_after_a_save_has_filled_the_disk_runsc_still_knows_the_sandbox_though_nobody_else_makes_room():
    async def life(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        here.world.fill_disk(slack_bytes=6 << 20)
        await here.until(State.THAWING)
        await here.until(State.RUNNING)
        here.world.make_room()
        lived_in = activation_of(here)
        await here.restart()
        assert ((await here.status())["state"], activation_of(here)) == ("Running", lived_in)
        await here.suspend()
        await here.resume()

    run(life, machine=Machine(state_bytes=8 << 20))


def test_a_sandbox_that_dies_fails_the_actor_and_names_the_last_snapshot():
    async def life(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        await here.suspend()
        await here.resume()
        here.world.kill_sandbox("a1")
        await here.until(State.FAILED)
        status = await here.status()
        assert status["error"]["reason"] == Reason.SANDBOX_DIED
        assert status["lastGoodSnapshot"] is not None
        assert here.left() == []
        await here.resume()
        await trio.sleep(1)
        await here.stop()

    played(life)


@pytest.mark.parametrize("state", BEFORE_THE_END)
def test_a_stop_in_any_state_ends_the_actor_and_leaves_nothing(state):
    async def life(here):
        await here.submit(counter())
        await here.reach(state)
        await here.stop()
        assert here.left() == []

    assert states(played(life))[-1] == "Terminated"


@pytest.mark.parametrize("state", [State.CREATING, State.RUNNING, State.SUSPENDING, State.SUSPENDED, State.RESTORING])
@pytest.mark.parametrize("on_drain", OnDrain)
def test_a_drain_in_any_state_ends_the_worker_and_leaves_no_sandbox(state, on_drain):
    async def life(here):
        await here.drain()  # the one that the stage has started
        await here.start(on_drain=on_drain)
        await here.submit(counter())
        await here.reach(state)
        await here.drain()
        assert here.worker.error is None
        assert here.left() == []
        assert trio.current_time() < 120

    last = states(played(life))[-1]
    assert last == "Suspended" if on_drain is OnDrain.SUSPEND and state is State.RUNNING else last != "Running"


RESTARTED = {
    State.CREATING: "Failed",
    State.VERIFYING: "Failed",
    State.RUNNING: "Failed",
    State.SUSPENDING: "Failed",
    State.RELEASING: None,
    State.SUSPENDED: "Suspended",
    State.RESTORING: None,
    State.STOPPING: None,
    State.TERMINATED: "Terminated",
}


GOES_ON = frozenset({State.RUNNING, State.SUSPENDING})
"""Where a sandbox lives that the next worker takes over, when it is still there."""


@pytest.mark.parametrize("state", RESTARTED)
@pytest.mark.parametrize("how", ["killed", "without power"])
def test_a_worker_that_ended_in_any_state_is_followed_by_one_that_finds_its_way(state, how):
    async def life(here):
        await here.submit(counter())
        await here.reach(state)
        await (here.restart() if how == "killed" else here.reboot())
        assert here.worker.lives
        await trio.sleep(1)
        after = (await here.status())["state"]
        goes_on = how == "killed" and state in GOES_ON
        assert (here.left() != []) is goes_on
        wanted = "Running" if goes_on else RESTARTED[state]
        if wanted is not None:
            assert after == wanted
        assert State(after) in {State.SUSPENDED, State.FAILED, State.TERMINATED, *([State.RUNNING] if goes_on else [])}
        await here.submit(counter(generation=2))
        await here.wait(State.RUNNING)
        await trio.sleep(1)
        await here.stop()
        assert here.left() == []

    run(life)


def test_what_a_dead_worker_left_is_gone_on_with_by_the_next():
    async def life(here):
        await here.submit(counter("a1"))
        await here.submit(counter("a2"))
        for uid in ("a1", "a2"):
            await here.wait(State.RUNNING, uid)
        here.kill()
        await trio.sleep(5)
        before = here.left()
        assert len(here.world.sandboxes_of("a1")) == 1
        assert len(here.output("a2")) > 40  # it lives on without its supervisor
        await here.start()
        await trio.sleep(1)
        assert here.left() == before
        await here.drain()
        assert here.left() == []

    record = run(life)
    assert sorted(said.fields["actor"] for said in record.log if said.event == "taken_over") == ["a1", "a2"]


def test_two_workers_do_not_share_a_state_directory():
    async def life(here):
        second = await here.start()
        assert isinstance(second.error, ProblemError)
        assert second.error.problem.reason is Reason.STATE_DIR_IN_USE
        await here.submit(idler())
        await here.wait(State.RUNNING)

    played(life)


def test_a_watched_directory_is_followed():
    async def life(here):
        here.world.put_assignment("one.json", counter("one"))
        await here.until(State.RUNNING, "one")
        here.world.put_assignment("one.json", counter("one", generation=2, state="Suspended"))
        await here.until(State.SUSPENDED, "one")
        here.world.put_assignment("one.json", counter("one", generation=3))
        await here.until(State.RUNNING, "one")
        here.world.remove_assignment("one.json")
        gone_s = trio.current_time()
        await here.until(State.TERMINATED, "one")
        assert trio.current_time() - gone_s >= 2

    played(life)
