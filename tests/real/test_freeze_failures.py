"""A freeze that fails: an actor that was not frozen runs on, and one that stands still is never called Running."""

import os
import signal

import orjson
import pytest

from tests.real.onlookers import commands_below
from tests.real.scenery import assignment, counting
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


async def test_a_pause_that_is_killed_before_it_does_anything_leaves_the_actor_running(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        pid = worker.sandbox_pid()
        # Held before it can reach the sandbox: the sandbox does not answer.
        os.kill(pid, signal.SIGSTOP)
        await worker.ask("suspend", uid="a1")
        (command,) = await eventually(lambda: commands_below(worker.state.root, "pause"))
        os.kill(command.pid, signal.SIGKILL)
        os.kill(pid, signal.SIGCONT)
        status = await worker.status_when("a1", lambda status: status["state"] in {"Running", "Failed"})
        assert status["state"] == "Running"
        assert (status["error"]["reason"], status["error"]["step"]) == ("RuntimeFailed", "suspend")
        assert worker.sandbox_pid() == pid
        await worker.counted_on("a1", "c1")
        await worker.suspend("a1")


@pytest.mark.long
async def test_a_frozen_actor_that_runsc_refuses_to_resume_is_not_called_running(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))

        def lose_the_pause():
            """What a `pause` leaves that was killed after it froze and before it wrote that down."""
            root = worker.record()["containers"]["pause"]
            (path,) = worker.state.sandboxes.glob(f"*/runsc/{root}_*.state")
            state = orjson.loads(path.read_bytes())
            assert state["status"] == "paused"
            path.write_bytes(orjson.dumps({**state, "status": "running"}))
            raise RuntimeError("it was killed")

        worker.gates.on("after pause", lose_the_pause)
        await worker.ask("suspend", uid="a1")
        status = await worker.reach("a1", "Failed")
        assert status["error"]["reason"] == "CouldNotThaw"
        assert worker.left() == []
