"""Cases of GPUs over the life of a worker: what fails, what goes on beside it, that it passes. Under their numbers."""

import attrs
import pytest
import trio

from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.faults import Fail, Fault, Lie, When
from sim.lives import asked, claiming
from sim.world.gpus import Driver, Toolkit, some_gpus
from sim.world.nvml import Symbol, Trouble
from sim.world.world import Machine
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from tests.sim import gpu_pods as pods
from tests.sim.gpu_pods import Failure

NEW = pods.OTHER_DRIVER
NOW = trio.current_time


def solo(uid, claimed=1):
    return actor(uid, claiming("main", claimed))


def plain(uid):
    return actor(uid, container("main", IDLE))


def generated(here):
    return sum(call.method == "run" and "cdi generate" in call.argument for call in here.world.ledger.calls)


async def up(here, *documents):
    for document in documents:
        await here.submit(document)
        await here.wait(State.RUNNING, document["metadata"]["uid"])


async def problems(here):
    return [each["reason"] for each in (await here.ask("status"))["worker"]["problems"]]


def test_case_009_a_driver_that_is_upgraded_below_an_actor_stops_new_claims_alone_until_it_is_loaded():
    async def scenario(here):
        await pods.furnish(here)
        here.world.gpus.upgrade_driver(NEW)
        await trio.sleep(pods.CLEARED_S)
        text = f"driver {NEW} in /usr/lib64 vs loaded {pods.MACHINE.driver.version}"
        await pods.fails(here, Failure(step=Step.GENERATE, reason=Reason.NVML_UNAVAILABLE, text=text))
        await up(here, plain("other"))
        await pods.stands(here, "holder", "plain", "other")
        here.world.gpus.reload_driver()
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert {each.incarnation for each in here.world.hearing.moves} == {1}

    run(scenario, machine=pods.MACHINE)


def test_case_010_a_probe_that_fails_is_a_reason_for_who_claims_and_nothing_to_who_does_not():
    async def scenario(here):
        here.world.gpus.deny_devices()
        pods.end_monitors(here.world)
        await trio.sleep(30)
        failure = Failure(
            step=Step.DETECT, reason=Reason.NVML_UNAVAILABLE, subject="nvml", text="1 node present, 0 usable"
        )
        await pods.fails(here, failure, document=solo("u1"))
        await up(here, plain("u2"))
        config = next(each.config for each in here.world.execution.given if each.container == "main")
        assert not config["linux"].get("devices")
        assert await problems(here) == ["NvmlUnavailable"]
        here.world.gpus.allow_devices()
        await trio.sleep(pods.CLEARED_S)
        await here.submit(asked(solo("u1"), 2, "Running"))
        await here.wait(State.RUNNING, "u1")

    run(scenario, machine=attrs.evolve(pods.MACHINE, gpus=some_gpus(1)))


@pytest.mark.parametrize("driver", [pods.MACHINE.driver, attrs.evolve(pods.MACHINE.driver, has_nodes=False)])
def test_case_010_a_pod_without_nodes_runs_who_claims_nothing_and_refuses_who_does(driver):
    gpus = () if driver.has_nodes else some_gpus(1)

    async def scenario(here):
        await up(here, plain("u2"))
        failure = Failure(
            step=Step.ADMISSION, reason=Reason.GPU_NOT_DETECTED, text="this pod has no GPU", is_refused=True
        )
        await pods.fails(here, failure, document=solo("u1"))
        assert await problems(here) == []

    run(scenario, machine=Machine(gpus=gpus, driver=driver))


def test_case_011_a_toolkit_that_is_mounted_late_fails_only_who_came_before_it():
    async def scenario(here):
        failure = Failure(
            step=Step.GENERATE, reason=Reason.TOOLKIT_NOT_FOUND, subject="/usr/local/nvidia/toolkit/nvidia-ctk"
        )
        await pods.fails(here, failure, document=solo("u1"))
        assert here.left() == []
        here.world.gpus.mount_toolkit()
        await up(here, solo("u2"))
        for uid in ("u3", "u4"):
            await here.submit(solo(uid))
        for uid in ("u3", "u4"):
            await here.wait(State.RUNNING, uid)
        assert generated(here) == 1

    machine = attrs.evolve(pods.MACHINE, toolkit=Toolkit(is_mounted=False, command_s=0.3))
    run(scenario, machine=machine)


def test_case_013_a_generator_that_hangs_costs_who_waits_for_it_and_nobody_else():
    async def scenario(here):
        await pods.furnish(here)
        await here.submit(pods.VICTIM)
        await here.until(State.GENERATING, "victim")
        pods.renew_toolkit(here.world)
        fault = here.world.gpus.spoil(Symbol.MIG_MODE, Trouble.HANG)
        begun_s = NOW()
        await trio.sleep(1)
        await up(here, plain("u2"))
        await trio.sleep(1)
        await here.suspend("holder")
        before_s = NOW()
        await here.ask("status")
        assert NOW() - before_s < 0.1
        assert here.state("victim") == "Generating"
        failure = Failure(step=Step.GENERATE, reason=Reason.STEP_DEADLINE_EXCEEDED, subject="nvidia-ctk")
        await pods.failed(here, failure)
        assert 60 <= NOW() - begun_s < 80
        generators = [each for each in here.world.table if each.is_running and "generate" in each.arguments]
        assert len(generators) <= 1  # the one that the change of the toolkit asks for, once the first was ended
        here.world.gpus.heal(fault)
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert here.state("plain") == here.state("u2") == "Running"

    run(scenario, machine=pods.MACHINE)


def test_case_018_a_driver_that_this_runsc_does_not_know_is_named_before_a_sandbox_is_made():
    async def scenario(here):
        failure = Failure(
            step=Step.CREATE,
            reason=Reason.DRIVER_UNSUPPORTED_BY_RUNTIME,
            subject="driver 550.90.12",
            text="not supported by this runsc; the nearest that is: 550.90.07",
        )
        await pods.fails(here, failure, document=solo("u1"))
        assert here.left() == []
        assert not [call for call in here.world.ledger.calls if " create " in call.argument]
        await up(here, plain("u2"))

    run(scenario, machine=attrs.evolve(pods.MACHINE, driver=Driver(version="550.90.12")))


# ---- case 019: at each command in turn

COMMANDS = {
    "create pause": "create .*bundles/pause",
    "create the first": "create .*bundles/trainer",
    "create the second": "create .*bundles/eval",
    "create the last": "create .*bundles/logger",
    "start pause": " start ",
    "start the first": "cover.* start ",
    "state": " state ",
}
HOW = {"it fails": Lie("failed"), "it is not done": Fail("ENOMEM"), "nobody knows": Lie("statusLost")}


@pytest.mark.parametrize("what", HOW.values(), ids=HOW)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_case_019_a_start_that_fails_in_the_middle_gives_everything_back_and_the_next_one_succeeds(command, what):
    async def scenario(here):
        await pods.furnish(here)
        fault = here.plant(Fault(id="planted", when=When(method="run", argument=command), what=what))
        await here.submit(pods.VICTIM)
        await until_rest(here, "victim")
        assert fault.has_fired
        if here.state("victim") == "Failed":
            problem = (await here.status("victim"))["error"]
            assert problem["step"] in {"create", "verify", "supervise"}, problem
            await pods.stands(here, "holder", "plain")
            await pods.runs(here)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)


@pytest.mark.parametrize("command", [*list(COMMANDS.values())[:4], " restore .*pause", "cover.* restore ", " state "])
def test_case_019_a_restore_that_fails_in_the_middle_goes_back_to_the_snapshot_and_gives_everything_back(command):
    async def scenario(here):
        await pods.furnish(here)
        await up(here, pods.VICTIM)
        good = (await here.suspend("victim"))["lastGoodSnapshot"]
        fault = here.plant(Fault(id="planted", when=When(method="run", argument=command), what=Lie("failed")))
        await here.ask("resume", uid="victim")
        await until_rest(here, "victim")
        if fault.has_fired:
            status = await here.status("victim")
            assert (status["state"], status["lastGoodSnapshot"]) == ("Suspended", good)
            await pods.stands(here, "holder", "plain")
            await here.resume("victim")
        await trio.sleep(0.5)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)


async def until_rest(here, uid):
    with trio.fail_after(1000):
        while here.state(uid) not in {"Running", "Failed", "Suspended"}:
            await trio.sleep(0.1)


# ---- case 041


def gpu_of(here, minor):
    async def state():
        gpus = (await here.ask("status"))["worker"]["gpus"]
        return next(each["state"] for each in gpus if each["minor"] == minor)

    return state


def test_case_041_an_error_of_the_application_ends_nobody_and_one_of_the_hardware_only_its_holder():
    async def scenario(here):
        await pods.furnish(here)
        held, free = gpu_of(here, pods.HELD), gpu_of(here, 3)
        for xid in (94, 13, 999):
            here.world.gpus.report(pods.HELD, xid)
            await trio.sleep(5)
        assert (await held(), here.state("holder")) == ("Held", "Running")
        noticed = [each["subject"] for each in (await here.status("holder"))["notices"]]
        assert noticed == [f"/dev/nvidia{pods.HELD} XID {xid}" for xid in (94, 13, 999)]
        assert (await here.status("plain"))["notices"] == []
        assert [each.fields["xid"] for each in here.world.hearing.said if each.event == "xid"] == [94, 13, 999]
        here.world.gpus.lose(3)
        await trio.sleep(0.001)
        refusal = Failure(step=Step.ADMISSION, reason=Reason.INSUFFICIENT_GPUS, is_refused=True)
        await pods.fails(here, refusal, document=solo("three", 3))
        assert await free() == "Lost"
        await pods.stands(here, "holder", "plain")
        here.world.gpus.recover(3)
        await trio.sleep(10)
        assert await free() == "Lost", "nobody is granted it in the same second"
        told = await pods.fails(here, refusal, document=solo("three", 3))
        assert "/dev/nvidia3 is withheld" in told["message"]
        await trio.sleep(pods.CLEARED_S)
        assert await free() == "Free"
        await up(here, solo("three", 3))
        here.world.gpus.lose(pods.HELD)
        await here.until(State.FAILED, "holder")
        assert (await here.status("holder"))["error"]["reason"] == "GpuLost"
        await trio.sleep(pods.CLEARED_S)
        assert here.state("plain") == here.state("three") == "Running"

    run(scenario, machine=pods.MACHINE)


def test_case_041_a_feed_that_dies_is_no_loss_of_any_gpu():
    async def scenario(here):
        await pods.furnish(here)
        for _ in range(5):
            pods.end_monitors(here.world)
            await trio.sleep(1)
        await trio.sleep(pods.CLEARED_S)
        await pods.stands(here, "holder", "plain")
        await up(here, solo("three", 3))
        assert set((await pods.holders(here)).values()) == {"holder", "three"}

    run(scenario, machine=pods.MACHINE)


def test_a_gpu_whose_node_goes_is_lost_for_its_holder_alone():
    async def scenario(here):
        await pods.furnish(here)
        here.world.gpus.remove_node(f"nvidia{pods.HELD}")
        await here.until(State.FAILED, "holder")
        assert (await here.status("holder"))["error"]["reason"] == "GpuLost"
        here.world.gpus.make_nodes()
        await trio.sleep(pods.CLEARED_S)
        await up(here, asked(pods.HOLDER, 2, "Running"))
        assert here.state("plain") == "Running"

    run(scenario, machine=pods.MACHINE)
