"""The world and its stage: any state of a life in three lines, any fault in four, and a machine like any other."""

import orjson
import pytest
import trio

from actors.ports import Peer
from sim.documents import IDLE, actor, container, counter, idler
from sim.engine import run
from sim.faults import Fail, Fault, When
from sim.scenario import NotReachedError, stage
from sim.world.runsc.programs import exits_with
from sim.world.runsc.settings import Flavour
from sim.world.world import ASSIGNMENTS, ROOTFS, Machine, World
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from tests.sim.reachable import BEFORE_THE_END


@pytest.mark.parametrize("state", [*BEFORE_THE_END, State.TERMINATED])
def test_a_state_is_reached_in_three_lines(state):
    async def life(here):
        await here.submit(counter())
        await here.reach(state)
        assert here.state() == state
        assert here.world.hearing.moves[-1].at_s == trio.current_time()

    run(life)


FAILING = container(command=["sh", "-c", "exit 1"])
BY_A_FAULT = {
    State.THAWING: (counter(), State.SUSPENDING, When(method="run", argument="checkpoint")),
    State.ROLLING_BACK: (counter(), State.CREATING, When(method="run", argument="start")),
    State.FAILED: (counter(), State.CREATING, When(method="adopt")),
    State.BACKING_OFF: (actor("a1", FAILING, restartPolicy="OnFailure"), State.CREATING, When(method="truncate")),
}


@pytest.mark.parametrize("state", BY_A_FAULT)
def test_a_state_that_only_a_fault_leads_to_is_reached_in_four(state):
    document, on_the_way, when = BY_A_FAULT[state]

    async def life(here):
        here.plant(Fault(id="f", when=when, what=Fail("EIO")))
        await here.submit(document)
        await here.reach(on_the_way)
        await here.until(state)
        assert here.state() == state

    run(life)


def test_what_cannot_be_reached_says_why():
    async def life(here):
        failed, idle = container(command=["sh", "-c", "sleep 1; exit 1"]), container("two", IDLE)
        await here.submit(actor("a1", failed, idle))
        await here.until(State.RUNNING)
        await trio.sleep(2)
        with pytest.raises(NotReachedError, match=r"is Running .* and not Suspended, last problem ContainerExited"):
            await here.reach(State.SUSPENDED)

    run(life)


def test_a_refusal_comes_as_it_does_to_any_client():
    async def life(here):
        with pytest.raises(ProblemError) as caught:
            await here.submit({"kind": "WorkerAssignment"})
        assert caught.value.problem.reason is Reason.UNSUPPORTED_KIND or caught.value.problems

    run(life)


@pytest.mark.parametrize("flavour", Flavour)
def test_the_machine_has_the_runsc_that_it_was_given(flavour):
    async def life(here):
        status = await here.ask("status")
        assert ("20240729" in status["worker"]["runsc"]["version"]) == (flavour is Flavour.R24)

    run(life, machine=Machine(flavour=flavour))


def test_a_program_can_be_given_under_any_name():
    async def life(here):
        await here.submit(actor("a1", container(command=["/srv/train", "--fast"])))
        await here.until(State.RUNNING)
        began_s = trio.current_time()
        await here.until(State.TERMINATED)
        assert trio.current_time() - began_s > 11

    run(life, machine=Machine(programs={("/srv/train", "--fast"): exits_with(0, after_s=12)}))


def test_a_machine_has_furniture_before_anything_runs():
    world = World(seed=1)
    assert world.read(ROOTFS / "bin/busybox").startswith(b"\x7fELF")
    world.put_assignment("a.json", counter())
    assert orjson.loads(world.read(ASSIGNMENTS / "a.json"))["metadata"]["uid"] == "a1"
    world.remove_assignment("a.json")
    assert world.files_below(ASSIGNMENTS) == {}
    with pytest.raises(RuntimeError, match="not open"):
        world.start()
    with pytest.raises(RuntimeError, match="no supervisor"):
        world.kill()


def test_what_was_not_on_the_platter_may_be_gone_after_a_power_failure_and_what_was_is_not():
    async def life(here):
        await here.submit(idler())
        await here.wait(State.RUNNING)
        await here.suspend()
        await here.reboot()
        assert (await here.status())["state"] == State.SUSPENDED
        await here.resume()
        await here.stop()

    for seed in range(4):
        run(life, seed=seed)


def test_the_run_directory_is_empty_after_a_boot():
    async def life(here):
        assert list(here.world.files_below(here.world.settings.run_dir)) == ["control.sock", "http.sock"]
        await here.world.reboot()
        assert here.world.files_below(here.world.settings.run_dir) == {}

    run(life)


def test_the_client_is_somebody_else_than_the_worker():
    async def life(here):
        connection = await here.world.client.connect_unix(here.world.settings.control_socket)
        assert connection.peer == Peer(pid=here.worker.pid, uid=0, gid=0)
        await connection.stream.aclose()

    run(life)


def test_a_worker_that_cannot_start_says_why_and_is_over():
    async def life(here):
        here.kill()
        here.world.fill_disk()
        here.plant(Fault(id="f", when=When(method="lock"), what=Fail("EROFS")))
        worker = await here.start()
        assert not worker.lives
        assert isinstance(worker.error, ProblemError)
        assert worker.error.problem.reason is Reason.STATE_UNWRITABLE

    run(life)


def test_a_signal_that_nobody_handles_ends_the_worker():
    async def life(here):
        here.worker.signal(3)
        assert not here.worker.lives
        assert here.worker.processes.process.exit_code == -3

    run(life)


@pytest.mark.trio
async def test_a_stage_can_be_had_without_a_supervisor(autojump_clock):
    async with stage(World(seed=1), starts=False) as here:
        assert here.world.incarnations == []
        here.world.put_assignment("a.json", counter())
        await here.start()
        await here.until(State.RUNNING)
