"""GPUs that are lost and come back, doubtful ones and floods of XIDs: who is told, who waits, who is started again."""

import trio

from sim.documents import IDLE, actor, container
from sim.engine import record_of, run
from sim.invariants.registry import check
from sim.lives import asked, claiming
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.states import State
from supervisor.gpu_telling import XIDS_AGAIN_S
from supervisor.notices import NOTICES_MAX
from supervisor.xid_reports import UNTOLD_MAX
from tests.sim import gpu_pods as pods

ONE = Machine(gpus=some_gpus(1, minors=(4,)), driver=Driver(version="550.90.07"))
MINOR = 4
SOLO = actor("solo", claiming("main", 1))


async def gpu(here, minor=MINOR):
    return next(each for each in (await here.ask("status"))["worker"]["gpus"] if each["minor"] == minor)


async def holds(here, uid="solo"):
    await here.submit(actor(uid, claiming("main", 1)))
    await here.wait(State.RUNNING, uid)


def starts(here, uid):
    return sum(move.actor == uid and move.after == "Creating" for move in here.world.hearing.moves)


def test_case_041_a_doubtful_gpu_stays_with_its_holder_and_is_granted_anew_when_it_has_been_well():
    async def scenario(here):
        await holds(here)
        here.world.gpus.report(MINOR, 74)
        await trio.sleep(5)
        assert (here.state("solo"), (await gpu(here))["state"]) == ("Running", "Held")
        (notice,) = (await here.status("solo"))["notices"]
        assert (notice["reason"], notice["subject"]) == ("GpuErrorReported", "/dev/nvidia4 XID 74")
        await here.stop("solo")
        assert (await gpu(here))["state"] == "Lost"
        assert "XID 74" in (await gpu(here))["withheld"]
        await trio.sleep(310)
        assert ((await gpu(here))["state"], (await gpu(here))["withheld"]) == ("Free", None)
        await holds(here, "next")

    run(scenario, machine=ONE)


def test_case_041_a_lost_gpu_ends_its_holder_which_nobody_starts_again_and_a_file_that_waits_is_admitted():
    async def scenario(here):
        await holds(here)
        here.world.put_assignment("late.json", actor("late", claiming("main", 1)))
        await trio.sleep(20)
        assert here.state("late") is None
        here.world.gpus.lose(MINOR)
        await here.until(State.FAILED, "solo")
        problem = (await here.status("solo"))["error"]
        assert (problem["reason"], problem["subject"]) == ("GpuLost", "/dev/nvidia4")
        assert "XID 79" in problem["message"]
        await trio.sleep(60)
        assert here.state("late") is None
        here.world.gpus.recover(MINOR)
        await trio.sleep(15)
        assert here.state("late") is None, "it has to stay well for a while"
        await here.until(State.RUNNING, "late")
        await trio.sleep(300)
        assert (here.state("solo"), starts(here, "solo")) == ("Failed", 1)
        assert {each.incarnation for each in here.world.hearing.moves} == {1}

    run(scenario, machine=ONE)


def test_case_041_a_gpu_that_comes_and_goes_fails_nobody_one_after_the_other_and_spins_nothing():
    async def scenario(here):
        here.world.put_assignment("late.json", actor("late", claiming("main", 1)))
        await here.until(State.RUNNING, "late")
        for _ in range(20):
            here.world.gpus.lose(MINOR)
            await trio.sleep(5)
            here.world.put_assignment("late.json", actor("late", claiming("main", 1), generation=2))
            here.world.gpus.recover(MINOR)
            await trio.sleep(25)
        assert here.state("late") == "Failed"
        assert starts(here, "late") == 1, "it was never well for long enough to be granted again"
        await here.until(State.RUNNING, "late")
        assert starts(here, "late") == 2
        said = [each for each in here.world.hearing.said if each.event in {"xid", "gpu_lost"}]
        assert len(said) < 3 * 20
        assert check(here.world, record_of(here.world)) == ()

    run(scenario, machine=ONE)


def test_case_041_a_flood_of_xids_costs_a_line_and_a_notice_and_holds_up_nobody():
    async def scenario(here):
        await holds(here)
        before = len(here.world.hearing.said)
        for _ in range(200):
            for _ in range(50):
                here.world.gpus.report(MINOR, 31)
            await trio.sleep(0.2)
        await here.submit(actor("plain", container("main", IDLE)))
        await here.wait(State.RUNNING, "plain")
        await trio.sleep(60)
        (notice,) = (await here.status("solo"))["notices"]
        assert (here.state("solo"), notice["count"]) == ("Running", 10_000)
        (told,) = (await gpu(here))["xids"]
        assert (told["xid"], told["count"]) == (31, 10_000)
        said = [each for each in here.world.hearing.said[before:] if each.event == "xid"]
        assert len(said) <= 2
        assert sum(call.method == "replace" and "status.json" in call.argument for call in here.world.ledger.calls) < 30

    run(scenario, machine=ONE)


def test_case_041_a_flood_of_ever_other_xids_costs_a_line_and_a_status_file_a_second():
    async def scenario(here):
        await holds(here)
        said, calls, began_s = len(here.world.hearing.said), len(here.world.ledger.calls), trio.current_time()
        for number in range(2000):
            here.world.gpus.report(MINOR, 1000 + number)
            await trio.sleep(0.03)
        bound = UNTOLD_MAX + (trio.current_time() - began_s) / XIDS_AGAIN_S
        lines = [each for each in here.world.hearing.said[said:] if each.event == "notice"]
        written = [call for call in here.world.ledger.calls[calls:] if call.argument.endswith("status.json")]
        assert NOTICES_MAX < len(lines) <= bound
        assert len(written) <= bound
        assert here.state("solo") == "Running"

    run(scenario, machine=ONE)


def test_a_higher_generation_starts_an_actor_that_lost_its_gpu_once_it_is_granted_again():
    async def scenario(here):
        await holds(here)
        here.world.gpus.lose(MINOR)
        await here.until(State.FAILED, "solo")
        here.world.gpus.recover(MINOR)
        await trio.sleep(pods.CLEARED_S)
        await here.submit(asked(SOLO, 2, "Running"))
        await here.wait(State.RUNNING, "solo")
        assert starts(here, "solo") == 2

    run(scenario, machine=ONE)


def flaky(uid="solo"):
    """It holds a GPU, fails after a second, and may be started again."""
    command = ["sh", "-c", "sleep 1; exit 3"]
    return actor(uid, {**claiming("main", 1), "command": command}, restartPolicy="OnFailure")


def test_who_backs_off_keeps_its_gpu_though_it_is_doubtful_by_now():
    async def scenario(here):
        await here.submit(flaky())
        await here.until(State.BACKING_OFF, "solo")
        here.world.gpus.report(MINOR, 74)
        await here.until(State.FAILED, "solo")
        assert starts(here, "solo") == 6, "the first start and five tries"
        assert (await here.status("solo"))["error"]["reason"] == "ContainerFailed"

    run(scenario, machine=ONE)


def test_who_backs_off_and_loses_its_gpu_is_not_tried_again():
    async def scenario(here):
        await here.submit(flaky())
        await here.until(State.BACKING_OFF, "solo")
        here.world.gpus.lose(MINOR)
        await here.until(State.FAILED, "solo")
        assert (await here.status("solo"))["error"]["reason"] == "GpuLost"
        here.world.gpus.recover(MINOR)
        await trio.sleep(300)
        assert (here.state("solo"), starts(here, "solo")) == ("Failed", 1)

    run(scenario, machine=ONE)
