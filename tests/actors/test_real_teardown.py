"""The end of real sandboxes, in whatever state they are: nothing is left."""

import os
import signal
from contextlib import ExitStack

import anyio
import attrs
import pytest

from actors.ports import AppendTo
from actors.runsc.activation import start_cold, start_restored
from actors.runsc.driver import Deadlines
from actors.runsc.teardown import RUNSC_ROOT, Leftover, end_activation, find_leftovers
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.stage import COUNT, open_stage, wait_until
from tests.real.onlookers import commands_below, sandboxes_below

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def end(stage, runsc):
    await end_activation(stage.ports.processes, stage.ports.files, runsc.activation)


@pytest.mark.parametrize("after_ms", [0, 5, 20, 40, 60, 80, 100, 130, 170, 220, 280])
async def test_a_start_that_is_cancelled_at_any_time_leaves_nothing(tmp_path, rootfs, after_ms):
    async with open_stage(tmp_path, rootfs) as stage:
        runsc, plan = await stage.plan(stage.container("c1"), stage.container("c2"))
        with anyio.move_on_after(after_ms / 1000):
            sandbox = await start_cold(runsc, plan)
            sandbox.close()
        await end(stage, runsc)
        assert stage.left() == []


@pytest.mark.parametrize("after_ms", [20, 60, 100, 140])
async def test_a_restore_that_is_cancelled_at_any_time_leaves_nothing(tmp_path, rootfs, after_ms):
    async with open_stage(tmp_path, rootfs) as stage:
        image = await stage.suspend(await stage.start(stage.container("c1")))
        runsc, plan = await stage.plan(stage.container("c1"))
        with anyio.move_on_after(after_ms / 1000):
            (await start_restored(runsc, plan, image)).close()
        await end(stage, runsc)
        assert stage.left() == []


def a_command(activation):
    return commands_below(activation, "create")


def a_state(activation):
    return list(activation.glob(f"{RUNSC_ROOT}/*.state"))


def hold(runsc, target):
    """Writing this file is the last that `create` does: as a fifo that nobody reads from, it keeps it from ending."""
    fifo = runsc.activation / f"{target.id}.pid"
    os.mkfifo(fifo)
    return fifo


@pytest.mark.parametrize("there_is", [a_command, sandboxes_below, a_state])
async def test_a_runsc_that_is_killed_in_mid_create_is_told_and_leaves_nothing(tmp_path, rootfs, there_is):
    async with open_stage(tmp_path, rootfs) as stage:
        runsc, plan = await stage.plan(stage.container("c1"))
        hold(runsc, plan.root)

        async def kill_the_command():
            await wait_until(lambda: there_is(runsc.activation))
            (command,) = a_command(runsc.activation)
            os.kill(command.pid, signal.SIGKILL)

        async with anyio.create_task_group() as group:
            group.start_soon(kill_the_command)
            with pytest.raises(ProblemError) as failed:
                await runsc.create_root(
                    plan.root, bundle=plan.pause_bundle, output=AppendTo(runsc.activation / "sandbox.log")
                )
        assert failed.value.problem.reason is Reason.RUNTIME_FAILED
        assert "signal 9" in failed.value.problem.message
        await end(stage, runsc)
        assert stage.left() == []


async def test_a_hung_sandbox_is_told_at_the_deadline_and_ends_all_the_same(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"), stage.container("c2"))
        deadlines = Deadlines(query_s=0.3, freeze_s=0.3)
        hurried = attrs.evolve(sandbox, runsc=attrs.evolve(sandbox.runsc, deadlines=deadlines))
        os.kill(sandbox.process.identity.pid, signal.SIGSTOP)
        for question in (hurried.inspect("c1"), hurried.freeze()):
            with pytest.raises(ProblemError) as failed:
                await question
            assert failed.value.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        await stage.end(sandbox)
        assert stage.left() == []


async def test_a_hung_sandbox_ends_without_our_handles_too(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"))
        os.kill(sandbox.process.identity.pid, signal.SIGSTOP)
        sandbox.close()
        await end(stage, sandbox.runsc)
        assert stage.left() == []


async def test_a_sandbox_that_died_is_noticed_at_once_and_what_is_asked_of_it_says_so(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"), stage.container("c2"))
        sandbox.process.signal(signal.SIGKILL)
        with anyio.fail_after(60):
            assert (await sandbox.died()).code == -signal.SIGKILL
            await sandbox.ended("c1")
        for ask in (sandbox.exit_code("c1"), sandbox.freeze(), sandbox.checkpoint_into(tmp_path / "state/image")):
            with pytest.raises(ProblemError) as failed:
                await ask
            assert failed.value.problem.reason in {Reason.SANDBOX_DIED, Reason.RUNTIME_FAILED}
        await stage.end(sandbox)
        await end(stage, sandbox.runsc)
        assert stage.left() == []


@pytest.mark.parametrize("when", ["it is created", "it is started"])
async def test_a_sandbox_that_dies_while_it_is_started_is_the_reason(tmp_path, rootfs, when):
    async with open_stage(tmp_path, rootfs) as stage:
        runsc, plan = await stage.plan(stage.container("c1"), stage.container("c2"))
        c1 = plan.target(plan.containers[0])
        fifo = hold(runsc, c1)

        async def kill_the_sandbox(reads):
            if when == "it is created":
                await wait_until(lambda: bool(sandboxes_below(runsc.activation)))
            else:
                await wait_until(lambda: any(runsc.root.glob(f"{c1.id}_*.state")))
            (sandbox,) = sandboxes_below(runsc.activation)
            os.kill(sandbox.pid, signal.SIGKILL)
            reads.callback(os.close, os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))  # now `create` may end

        with ExitStack() as reads:
            async with anyio.create_task_group() as group:
                group.start_soon(kill_the_sandbox, reads)
                with pytest.raises(ProblemError) as failed:
                    await start_cold(runsc, plan)
        assert failed.value.problem.reason in {Reason.SANDBOX_DIED, Reason.RUNTIME_FAILED}
        await end(stage, runsc)
        assert stage.left() == []


async def test_leftovers_are_found_by_their_processes_and_by_their_directories(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        ports, sandboxes = stage.ports, stage.state.sandboxes
        assert await find_leftovers(ports.processes, ports.files, sandboxes) == ()
        sandbox = await stage.start(stage.container("c1", COUNT))
        (sandboxes / "empty").mkdir()
        alive, empty = await find_leftovers(ports.processes, ports.files, sandboxes)
        assert {alive.activation, empty.activation} == {sandbox.record.activation, "empty"}
        assert set(alive.processes) >= {child.identity for child in sandbox.owned}
        assert empty == Leftover(activation="empty", processes=())
        sandbox.close()
        for leftover in (alive, empty):
            await end_activation(ports.processes, ports.files, sandboxes / leftover.activation)
        assert await find_leftovers(ports.processes, ports.files, sandboxes) == ()
        assert stage.left() == []


async def test_one_activation_ends_and_its_neighbour_lives(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        ending, living = await stage.start(stage.container("c1")), await stage.start(stage.container("c2"))
        await stage.end(ending)
        count = len(stage.lines("c2"))
        await wait_until(lambda: len(stage.lines("c2")) > count + 3)
        assert (await living.inspect("c2")).pid == living.process.identity.pid
        await stage.end(living)
