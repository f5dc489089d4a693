"""The keeper of the CDI spec in the simulated world, where nvidia-ctk is a process: late, hanging, killed.

The worker there has a keeper, too; the one that is looked at here has a directory of its own.
"""

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.gpu.inventory import Gpu, Inventory
from sim.engine import run
from sim.faults import Fail, Fault, Hang, When
from sim.world import scenery
from sim.world.calls import FencedError
from sim.world.gpus import Toolkit, some_gpus
from sim.world.nvml import Symbol, Trouble
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.spec_keeper import spec_keeper_of

FOUR = Machine(gpus=some_gpus(4, minors=(7, 2, 5, 3)))
LATE = Machine(gpus=some_gpus(2), toolkit=Toolkit(is_mounted=False))
DRIVER = FOUR.driver.version


def directory(here):
    return here.world.settings.state_dir / "looked-at" / "cdi"


def inventory(here):
    return Inventory(
        Gpu(uuid=gpu.uuid, minor=gpu.minor, pci_bus_id=gpu.pci_bus_id, model=gpu.model)
        for gpu in here.world.gpus.visible()
    )


@asynccontextmanager
async def keeping(here):
    keeper = spec_keeper_of(here.worker.ports, attrs.evolve(here.world.settings, state_dir=directory(here).parent))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        yield keeper
        nursery.cancel_scope.cancel()


async def ask(here, keeper, answers=None):
    try:
        answer = await keeper.spec(inventory(here), DRIVER)
    except ProblemError as error:
        answer = error.problem
    if answers is not None:
        answers.append(answer)
    return answer


def running(here):
    """The running calls that make a spec."""
    return [
        process
        for process in here.world.table
        if process.is_running and any(str(directory(here)) in word for word in process.arguments)
    ]


def generated(here):
    """How many calls that make a spec were made."""
    return sum(call.method == "run" and str(directory(here)) in call.argument for call in here.world.ledger.calls)


def specs(here):
    return here.world.files_below(directory(here))


def test_ten_who_ask_at_once_have_one_spec_of_one_run_and_each_gpu_its_node():
    async def scenario(here):
        answers: list[Any] = []
        async with keeping(here) as keeper:
            async with trio.open_nursery() as askers:
                for _ in range(10):
                    askers.start_soon(ask, here, keeper, answers)
            again = await ask(here, keeper)
        assert {answer.identity for answer in answers} == {again.identity}
        for gpu in inventory(here).gpus:
            device = again.spec.device(gpu.uuid)
            assert [node.path for node in device.container_edits.device_nodes] == [gpu.path]
        assert generated(here) == 1
        assert [name for name in specs(here) if name.endswith(".json")] == [f"{again.identity}/nvidia.json"]

    run(scenario, machine=FOUR)


def test_case_011_a_toolkit_that_is_mounted_late_bricks_nothing():
    async def scenario(here):
        async with keeping(here) as keeper:
            first = await ask(here, keeper)
            assert first.reason is Reason.TOOLKIT_NOT_FOUND
            assert "/usr/local/nvidia/toolkit/nvidia-ctk" in first.subject
            here.world.gpus.mount_toolkit()
            assert (await ask(here, keeper)).spec
            answers: list[Any] = []
            async with trio.open_nursery() as askers:
                for _ in range(2):
                    askers.start_soon(ask, here, keeper, answers)
            assert answers[0] is answers[1]
        assert generated(here) == 1

    run(scenario, machine=LATE)


def test_a_toolkit_that_is_mounted_late_is_noticed_and_the_spec_made_before_the_next_who_asks():
    async def scenario(here):
        async with keeping(here) as keeper:
            assert (await ask(here, keeper)).reason is Reason.TOOLKIT_NOT_FOUND
            await trio.sleep(60)
            assert generated(here) == 0
            here.world.gpus.mount_toolkit()
            await trio.sleep(5)
            assert generated(here) == 1
            assert (await ask(here, keeper)).spec
            assert generated(here) == 1

    run(scenario, machine=LATE)


def test_case_009_an_upgrade_makes_one_spec_once_the_module_is_loaded_and_leaves_the_old_one():
    async def scenario(here):
        async with keeping(here) as keeper:
            before = await ask(here, keeper)
            await trio.sleep(10)
            here.world.gpus.upgrade_driver("590.48.01")
            problem = await ask(here, keeper)
            assert problem.reason is Reason.NVML_UNAVAILABLE
            assert "driver 590.48.01 in /usr/lib64 vs loaded 580.65.06" in problem.message
            here.world.gpus.reload_driver()
            after = await keeper.spec(inventory(here), "590.48.01")
            assert after.identity != before.identity
            assert {before.identity, after.identity} <= set(specs(here))
        assert generated(here) == 2

    run(scenario, machine=FOUR)


@pytest.mark.parametrize("symbol", [Symbol.INIT, Symbol.COUNT, Symbol.UUID])
def test_case_013_a_run_that_hangs_ends_at_its_deadline_and_the_next_is_begun_after_it(symbol):
    async def scenario(here):
        fault = here.world.gpus.spoil(symbol, Trouble.HANG)
        async with keeping(here) as keeper:
            before_s = trio.current_time()
            problem = await ask(here, keeper)
            assert problem.reason is Reason.STEP_DEADLINE_EXCEEDED
            assert 60 <= trio.current_time() - before_s < 80
            assert problem.subject == str(here.world.gpus.toolkit.program)
            assert not running(here)
            assert not specs(here)
            here.world.gpus.heal(fault)
            assert (await ask(here, keeper)).spec

    run(scenario, machine=FOUR)


def test_a_library_that_crashes_the_tool_is_a_reason():
    async def scenario(here):
        here.world.gpus.spoil(Symbol.HANDLE_BY_INDEX, Trouble.CRASH)
        async with keeping(here) as keeper:
            problem = await ask(here, keeper)
            assert problem.reason is Reason.GENERATE_FAILED
            assert "signal 11" in problem.message
            assert not specs(here)

    run(scenario, machine=FOUR)


def test_a_stray_spec_beside_ours_and_variables_of_the_pod_do_no_harm():
    async def scenario(here):
        stray = directory(here) / "stray.yaml"
        scenery.put_file(here.world.disk, stray, b"cdiVersion: 0.5.0\nkind: vendor.com/x\n")
        scenery.put_file(here.world.disk, Path("/tmp/stray.yaml"), b"cdiVersion: 0.5.0\nkind: vendor.com/x\n")
        async with keeping(here) as keeper:
            assert (await ask(here, keeper)).spec

    run(scenario, machine=FOUR)


FAULTS = {
    "the private directory cannot be made": (When(method="make_directory", argument="looked-at.*new-"), Fail("ENOSPC")),
    "the output cannot be read": (When(method="read", argument="looked-at.*new-"), Fail("EIO")),
    "the spec cannot be written": (When(method="replace", argument="looked-at.*nvidia.json"), Fail("ENOSPC")),
    "the tool cannot be started": (When(method="run", argument="looked-at"), Fail("EAGAIN")),
    "the tool takes too long": (When(method="run", argument="looked-at"), Hang(for_s=600)),
}


@pytest.mark.parametrize(("when", "what"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_world_is_a_reason_leaves_nothing_and_is_forgotten(when, what):
    async def scenario(here):
        planted = here.plant(Fault(id="fault", when=when, what=what))
        async with keeping(here) as keeper:
            problem = await ask(here, keeper)
            assert planted.fired
            assert problem.reason in {
                Reason.STATE_UNWRITABLE,
                Reason.GENERATE_FAILED,
                Reason.STEP_DEADLINE_EXCEEDED,
            }
            assert not [name for name, data in specs(here).items() if data is not None]
            assert (await ask(here, keeper)).spec

    run(scenario, machine=FOUR)


def test_what_a_killed_supervisor_leaves_is_ended_and_removed_by_the_next():
    async def scenario(here):
        fault = here.world.gpus.spoil(Symbol.COUNT, Trouble.HANG)
        pid = None
        try:
            async with keeping(here) as keeper:
                with trio.move_on_after(20):
                    await keeper.spec(inventory(here), DRIVER)
                (pid,) = [process.pid for process in running(here)]
                here.kill()
                await trio.sleep(1000)
        except* FencedError:
            pass
        (left,) = [process for process in here.world.table if process.pid == pid]
        assert left.is_running
        assert [name for name in specs(here) if ".new-" in name]
        here.world.gpus.heal(fault)
        await here.start()
        async with keeping(here) as keeper:
            assert (await ask(here, keeper)).spec
        assert not left.is_running
        assert not [name for name in specs(here) if ".new-" in name]

    run(scenario, machine=FOUR)


@pytest.mark.parametrize("seed", range(6))
def test_after_a_power_cut_there_is_a_whole_spec_or_none(seed):
    async def scenario(here):
        async with keeping(here) as keeper:
            before = await ask(here, keeper)
        whole = here.world.read(before.path)
        await here.reboot()
        left = [data for name, data in specs(here).items() if name.endswith("nvidia.json")]
        assert left in ([], [whole])
        async with keeping(here) as keeper:
            after = await ask(here, keeper)
        assert after.identity != before.identity

    run(scenario, seed=seed, machine=FOUR)
