"""Starts that fail: each ends Failed with its reason, and leaves nothing."""

import os
import shutil
import signal

import pytest

from actors.runsc.record import ROOT_CONTAINER
from statemachine.problem import ProblemError
from tests.real.onlookers import commands_below, sandboxes_below, seen_below
from tests.real.scenery import assignment, counting, running
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


@pytest.mark.parametrize("command", ["/bin/nope", "nope"])
async def test_a_command_that_does_not_exist_is_named(tmp_path, rootfs, command):
    async with open_worker(tmp_path) as worker:
        await worker.submit(assignment("a1", counting("c1", rootfs), running("c2", rootfs, command, "argument")))
        status = await worker.reach("a1", "Failed")
        assert (status["error"]["reason"], status["error"]["subject"]) == ("CommandNotFound", "c2")
        assert command in status["error"]["message"]
        assert worker.left() == []


async def test_a_rootfs_that_does_not_exist_is_refused_at_admission(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        with pytest.raises(ProblemError, match="RootfsNotFound"):
            await worker.submit(assignment("a1", counting("c1", tmp_path / "nowhere")))
        assert await worker.refusal("status", uid="a1") == "ActorNotFound"
        assert not worker.state.actor("a1").root.exists()


async def test_a_rootfs_that_vanishes_after_admission_is_missed_before_anything_runs(tmp_path, rootfs):
    vanishing = shutil.copytree(rootfs, tmp_path / "vanishing", symlinks=True)
    async with open_worker(tmp_path) as worker:
        worker.gates.on("replace journal.jsonl", lambda: shutil.rmtree(vanishing))
        await worker.submit(assignment("a1", counting("c1", rootfs), counting("c2", vanishing)))
        status = await worker.reach("a1", "Failed")
        assert (status["error"]["reason"], status["error"]["subject"]) == ("RootfsNotFound", "c2")
        assert worker.left() == []


@pytest.mark.parametrize("moment", ["before create", "after create", "before start"])
async def test_a_rootfs_that_vanishes_while_it_starts_fails_the_actor(tmp_path, rootfs, moment):
    vanishing = shutil.copytree(rootfs, tmp_path / "vanishing", symlinks=True)
    async with open_worker(tmp_path) as worker:
        worker.gates.on(moment, lambda: shutil.rmtree(vanishing))
        await worker.submit(assignment("a1", counting("c1", rootfs), counting("c2", vanishing)))
        status = await worker.reach("a1", "Failed")
        assert status["error"]["reason"] in {"RuntimeFailed", "CommandNotFound", "SandboxDied"}
        assert status["error"]["detail"]
        assert worker.left() == []


def runs(command):
    return True


def has_a_sandbox(command):
    return [seen for seen in seen_below(command.root) if seen.verb == "boot"]


def has_a_state(command):
    return list(command.root.glob(f"{command.container}_*.state"))


def asks_the_sandbox(command):
    return any(target.startswith("socket:") for target in command.descriptors())


@pytest.mark.parametrize(
    ("container", "far_enough"),
    [
        (ROOT_CONTAINER, runs),
        (ROOT_CONTAINER, has_a_sandbox),
        (ROOT_CONTAINER, has_a_state),
        ("c1", runs),
        ("c1", has_a_state),
    ],
)
async def test_a_create_whose_runsc_is_killed_fails_with_a_reason_and_can_be_tried_again(
    tmp_path, rootfs, container, far_enough
):
    async with open_worker(tmp_path) as worker:
        gate = worker.gates.close("before create", skip=0 if container == ROOT_CONTAINER else 1)
        await worker.submit(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await gate.arrival()
        # Writing this file is the last that `create` does: as a fifo that nobody reads from, it keeps it from ending.
        container_id = worker.record()["containers"][container]
        os.mkfifo(worker.activation() / f"{container_id}.pid")
        gate.open()
        command = await _command(worker, "create", lambda seen: seen.container == container_id and far_enough(seen))
        os.kill(command.pid, signal.SIGKILL)
        error = (await worker.reach("a1", "Failed"))["error"]
        assert error["reason"] == "RuntimeFailed"
        assert "signal 9" in error["message"]
        await _tried_again(worker)


@pytest.mark.parametrize("far_enough", [runs, asks_the_sandbox])
@pytest.mark.parametrize("number", [0, 1])
async def test_a_start_whose_runsc_is_killed_fails_with_a_reason_and_can_be_tried_again(
    tmp_path, rootfs, number, far_enough
):
    async with open_worker(tmp_path) as worker:
        gate = worker.gates.close("before start", skip=number)
        await worker.submit(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await gate.arrival()
        # A sandbox that is stopped answers nobody, which keeps `start` from ending.
        (sandbox,) = sandboxes_below(worker.state.root)
        os.kill(sandbox.pid, signal.SIGSTOP)
        gate.open()
        command = await _command(worker, "start", far_enough)
        os.kill(command.pid, signal.SIGKILL)
        os.kill(sandbox.pid, signal.SIGCONT)
        error = (await worker.reach("a1", "Failed"))["error"]
        assert error["reason"] == "RuntimeFailed"
        assert "signal 9" in error["message"]
        await _tried_again(worker)


async def _command(worker, verb, is_wanted):
    """The command of runsc with this subcommand, once it is as wanted."""
    return await eventually(lambda: next(filter(is_wanted, commands_below(worker.state.root, verb)), None))


async def _tried_again(worker):
    assert worker.left() == []
    await worker.resume("a1")
    await worker.counted_on("a1", "c1")
    await worker.counted_on("a1", "c2")
