"""What a restarted supervisor cannot go on with: ended, told with its cause, and nothing is guessed."""

import json
import signal

import attrs
import pytest
import trio

from actors.runsc.record import RECORD_NAME
from sim.documents import IDLE, actor, container, counter
from sim.engine import run
from sim.faults import Fault, Hang, When
from sim.lives import claiming
from sim.world import scenery
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import recovering
from tests.sim.restarts import (
    GPUS,
    activation_of,
    killed_while_running,
    lost,
    scene,
    write_record,
)


def test_a_sandbox_that_died_while_there_was_nobody_is_told_as_gone():
    @scene()
    async def _(here):
        await killed_while_running(here)
        here.world.kill_sandbox("a1")
        await here.start()
        assert "its sandbox is gone" in await lost(here)


def test_after_another_boot_nothing_is_alive():
    @scene()
    async def _(here):
        await killed_while_running(here)
        await here.world.reboot(synced=True)
        await here.start()
        assert "booted anew" in await lost(here)


def test_a_record_of_another_boot_is_not_believed_and_no_process_is_looked_at_because_of_it():
    @scene()
    async def _(here):
        await killed_while_running(here)
        write_record(here, bootId="another")
        worker = await here.start()
        assert await lost(here)
        asked = [call.method for call in here.world.ledger.calls if call.incarnation == worker.number]
        assert "reclaim" not in asked


def test_a_record_that_says_too_little_is_not_gone_on_with():
    @scene()
    async def _(here):
        await killed_while_running(here)
        record, path = activation_of(here)
        del record["belongings"]
        scenery.put_file(here.world.disk, path, json.dumps({**record, "v": 1}).encode())
        await here.start()
        assert "an earlier version wrote its record" in await lost(here)


def test_a_record_of_a_newer_version_is_set_aside():
    @scene()
    async def _(here):
        await killed_while_running(here)
        write_record(here, v=9)
        await here.start()
        assert "its sandbox is gone" in await lost(here)
        kept = [name for name in here.world.files_below(here.world.state.root) if f"{RECORD_NAME}.aside-" in name]
        assert len(kept) == 1


def test_a_record_that_cannot_be_read_goes_with_its_sandbox():
    @scene()
    async def _(here):
        await killed_while_running(here)
        _, path = activation_of(here)
        scenery.put_file(here.world.disk, path, b"{")
        await here.start()
        assert "its sandbox is gone" in await lost(here)
        assert not [name for name in here.world.files_below(here.world.state.root) if RECORD_NAME in name]


def test_a_sandbox_that_does_not_answer_is_ended_and_that_is_told():
    @scene()
    async def _(here):
        await killed_while_running(here)
        for sandbox in here.world.sandboxes_of("a1"):
            here.world.table.signal(sandbox, signal.SIGSTOP)
        await here.start()
        assert "did not end within 15 s" in await lost(here)


def test_a_bundle_that_cannot_be_read_any_more_is_told():
    @scene()
    async def _(here):
        await killed_while_running(here)
        _, path = activation_of(here)
        scenery.put_file(here.world.disk, path.parent / "bundles/main/config.json", b"{")
        await here.start()
        assert "config.json cannot be read" in await lost(here)


def test_a_sandbox_whose_actor_is_not_known_any_more_is_ended():
    async def scenario(here):
        await killed_while_running(here)
        scenery.put_file(here.world.disk, here.world.state.actor("a1").assignment, b"{")
        await here.start()
        assert here.left() == []
        with pytest.raises(ProblemError, match="ActorNotFound"):
            await here.status()

    run(scenario, seed=1)


def both_are_of(here, uid):
    """Let the records of all sandboxes say that they are of one actor."""
    for name in here.world.files_below(here.world.state.sandboxes):
        if name.endswith(f"/{RECORD_NAME}"):
            path = here.world.state.sandboxes / name
            document = json.loads(here.world.read(path))
            scenery.put_file(here.world.disk, path, json.dumps({**document, "actor": uid}).encode())


def test_two_sandboxes_of_one_actor_are_both_ended():
    @scene()
    async def _(here):
        await killed_while_running(here, counter(), counter("a2"))
        both_are_of(here, "a1")
        await here.start()
        assert "2 sandboxes" in await lost(here)
        assert (await here.status("a2"))["state"] == "Failed"


# ---- GPUs


TWO = actor("a1", claiming("trainer", 1), container("log", IDLE), claiming("eval", 1))


def test_gpus_stay_with_whom_they_were_granted_and_nobody_else_gets_them():
    @scene(GPUS)
    async def _(here):
        await killed_while_running(here, TWO)
        before = (await_status := here.status_file())["containers"]
        assert [len(each["gpus"]) for each in await_status["containers"]] == [1, 0, 1]
        await here.start()
        assert (await here.status())["containers"] == before
        with pytest.raises(ProblemError, match="a1 holds 2"):
            await here.submit(actor("a2", claiming("solo", 2)))
        await here.submit(actor("a3", claiming("solo", 1)))
        await here.wait(State.RUNNING, "a3")
        await here.suspend()
        await here.resume()
        await here.restart()
        assert (await here.status())["state"] == "Running"
        await here.stop()
        await here.submit(actor("a2", claiming("solo", 2)))
        await here.wait(State.RUNNING, "a2")


def test_a_gpu_that_is_lost_while_there_is_nobody_is_told_of_the_actor():
    @scene(GPUS)
    async def _(here):
        await killed_while_running(here, TWO)
        here.world.gpus.lose(2)
        await here.start()
        status = await here.wait(State.FAILED)
        assert (status["error"]["reason"], here.left()) == ("GpuLost", [])
        here.world.gpus.recover(2)


def test_the_gpus_of_what_is_not_gone_on_with_are_free():
    @scene(GPUS)
    async def _(here):
        await killed_while_running(here, TWO)
        here.world.kill_sandbox("a1")
        await here.start()
        assert "its sandbox is gone" in await lost(here)
        await here.submit(actor("a2", claiming("solo", 3)))
        await here.wait(State.RUNNING, "a2")


# ---- what no actor knows of

HUNG = Fault(id="hung", when=When(port="processes", method="find", incarnation=2, times_max=2), what=Hang(15))
"""So that the end of an activation takes longer than it may."""


def longer(fault, times):
    return attrs.evolve(fault, when=attrs.evolve(fault.when, times_max=times))


def unknown(here):
    """Take away what says that the actor is there at all."""
    directory = here.world.disk.find_directory(here.world.state.actor("a1").root)
    here.world.disk.remove(directory, here.world.state.actor("a1").assignment.name)


def test_what_no_actor_knows_of_and_cannot_be_ended_keeps_its_gpus_and_is_ended_later():
    async def scenario(here):
        await killed_while_running(here, TWO)
        unknown(here)
        here.plant(HUNG)
        await here.start()
        with pytest.raises(ProblemError, match=f"{here.left()[-1]} holds 2"):
            await here.submit(actor("a2", claiming("solo", 2)))
        await trio.sleep(120)
        assert here.left() == []
        await here.submit(actor("a2", claiming("solo", 3)))
        await here.wait(State.RUNNING, "a2")

    run(scenario, seed=1, machine=GPUS)


def test_an_actor_that_begins_anew_beside_what_is_left_of_it_has_gpus_of_its_own_and_keeps_them():
    async def scenario(here):
        await killed_while_running(here, TWO)
        unknown(here)
        here.plant(HUNG)
        await here.start()
        await here.submit(actor("a1", claiming("solo", 1), generation=2))
        await here.wait(State.RUNNING)
        await trio.sleep(120)
        assert (await here.status())["state"] == "Running"
        with pytest.raises(ProblemError, match="a1 holds 1"):
            await here.submit(actor("a2", claiming("solo", 3)))
        await here.submit(actor("a2", claiming("solo", 2)))
        await here.wait(State.RUNNING, "a2")

    run(scenario, seed=1, machine=GPUS)


def test_what_an_actor_that_has_lost_its_journal_does_not_know_of_is_ended_later():
    @scene(GPUS)
    async def _(here):
        await killed_while_running(here, TWO)
        scenery.put_file(here.world.disk, here.world.state.actor("a1").journal, b"{}\n")
        here.plant(HUNG)
        await here.start()
        assert (await here.wait(State.FAILED))["error"]["reason"] == "SupervisorRestarted"
        with pytest.raises(ProblemError, match="holds 2"):
            await here.submit(actor("a2", claiming("solo", 2)))
        await trio.sleep(120)
        assert here.left() == []
        await here.submit(actor("a2", claiming("solo", 3)))
        await here.wait(State.RUNNING, "a2")


def test_a_wish_that_is_refused_costs_nothing_that_is_left_its_end(monkeypatch):
    async def refused(_worker, life):
        raise ProblemError(Problem(step=Step.RECOVER, reason=Reason.WORKER_FULL, subject=life.uid, message="full"))

    monkeypatch.setattr(recovering, "_follow", refused)

    @scene()
    async def _(here):
        await killed_while_running(here, counter(), counter("a2"))
        both_are_of(here, "a1")
        wanted = here.world.state.actor("a1").assignment
        document = json.loads(here.world.read(wanted))
        document["assignment"]["generation"] += 1
        scenery.put_file(here.world.disk, wanted, json.dumps(document).encode())
        here.plant(longer(HUNG, times=3))
        await here.start()
        assert len(here.left()) > 0
        await trio.sleep(300)
        assert here.left() == []


def test_a_drain_does_not_wait_for_a_try_that_hangs():
    @scene()
    async def _(here):
        await killed_while_running(here)
        await here.world.reboot(synced=True)
        here.plant(HUNG)
        worker = await here.start()
        await trio.sleep(6)
        began_s = trio.current_time()
        await here.drain()
        assert trio.current_time() - began_s < 2
        assert (worker.error, here.left()) == (None, [])


def test_what_is_left_of_an_activation_after_a_boot_and_cannot_be_removed_is_removed_later():
    @scene()
    async def _(here):
        await killed_while_running(here)
        await here.world.reboot(synced=True)
        here.plant(HUNG)
        await here.start()
        assert len(here.left()) == 1
        await trio.sleep(120)
        assert here.left() == []


TAMPERED = {
    "another runsc": lambda record: record["belongings"].update(runtimeSha256="f" * 64),
    "that are not the actor's: extra": lambda record: record["containers"].update(extra="c" + "0" * 16),
    "of which nothing is known: main": lambda record: record["containers"].pop("main"),
    "runsc does not know container main": lambda record: record["containers"].update(main="c" + "0" * 16),
    "runsc does not know its sandbox": lambda record: record["containers"].update(pause="c" + "0" * 16),
    "cannot be booked": lambda record: record["belongings"].update(granted=[{"container": "main", "gpus": []}]),
}


@pytest.mark.parametrize("says", TAMPERED)
def test_what_does_not_fit_together_is_not_gone_on_with(says):
    @scene()
    async def _(here):
        await killed_while_running(here)
        record, path = activation_of(here)
        TAMPERED[says](record)
        scenery.put_file(here.world.disk, path, json.dumps(record).encode())
        await here.start()
        assert says in await lost(here)
