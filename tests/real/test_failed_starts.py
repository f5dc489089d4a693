"""Starts that fail: each ends Failed with its reason, and leaves nothing."""

import contextlib
import os
import shutil
import signal

import anyio
import pytest

from statemachine.problem import ProblemError
from tests.real.onlookers import commands_below
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


@pytest.mark.parametrize(
    ("verb", "number", "turns"),
    [("create", 0, 0), ("create", 0, 6), ("create", 1, 0), ("start", 0, 0), ("start", 1, 0), ("start", 1, 4)],
)
async def test_a_start_whose_runsc_is_killed_fails_with_a_reason_and_can_be_tried_again(
    tmp_path, rootfs, verb, number, turns
):
    async with open_worker(tmp_path) as worker:
        gate = worker.gates.close(f"after {verb}", skip=number)
        await worker.submit(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        seen: set[int] = set()

        def victim():
            for command in commands_below(worker.state.root, verb):
                seen.add(command.pid)
                if sorted(seen).index(command.pid) >= number:
                    return command.pid
            return None

        pid = await eventually(victim)
        for _ in range(turns):
            await anyio.sleep(0.005)
        _kill(pid)
        gate.open()
        status = await worker.status_when("a1", lambda status: status["state"] in {"Running", "Failed"})
        if status["state"] == "Running":  # too late for this moment: runsc had done its work, and nothing has happened
            await worker.counted_on("a1", "c1")
            await worker.counted_on("a1", "c2")
            return
        assert status["error"]["reason"] in {"RuntimeFailed", "SandboxDied"}
        assert status["error"]["message"]
        assert worker.left() == []
        await worker.resume("a1")
        await worker.counted_on("a1", "c2")


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
