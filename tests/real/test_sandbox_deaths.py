"""Sandboxes that die or hang: the actor is Failed with the last good snapshot named, or is ended all the same."""

import os
import signal

import anyio
import pytest

from tests.real.scenery import assignment, counting
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


async def test_a_sandbox_killed_while_running_fails_its_actor_which_then_resumes_from_its_snapshot(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        good = (await worker.suspend("a1"))["lastGoodSnapshot"]
        saved = worker.lines("a1", "c1")
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")
        os.kill(worker.sandbox_pid(), signal.SIGKILL)
        status = await worker.reach("a1", "Failed")
        assert status["error"]["reason"] == "SandboxDied"
        assert "killed by signal 9 (SIGKILL)" in status["error"]["message"]
        assert status["lastGoodSnapshot"] == good
        assert worker.left() == []
        after_death = worker.lines("a1", "c1")
        await worker.resume("a1")
        await worker.status_when("a1", lambda _: len(worker.lines("a1", "c1")) > len(after_death) + 2)
        assert worker.lines("a1", "c1")[len(after_death)] == str(len(saved))
        await worker.stop("a1")


async def test_a_sandbox_killed_without_a_snapshot_fails_its_actor_which_then_starts_cold(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        await worker.counted_on("a1", "c1")
        os.kill(worker.sandbox_pid(), signal.SIGKILL)
        status = await worker.reach("a1", "Failed")
        assert (status["error"]["reason"], status["lastGoodSnapshot"]) == ("SandboxDied", None)
        assert worker.left() == []
        lines = worker.lines("a1", "c1")
        await worker.resume("a1")
        await worker.status_when("a1", lambda _: len(worker.lines("a1", "c1")) > len(lines))
        assert worker.lines("a1", "c1")[len(lines)] == "0"


@pytest.mark.parametrize(
    "gate", ["before pause", "after pause", "before checkpoint", "after checkpoint", "sync_tree snapshots"]
)
async def test_a_sandbox_killed_while_it_is_suspended_fails_its_actor_and_leaves_no_half_snapshot(
    tmp_path, rootfs, gate
):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        stands = worker.gates.close(gate)
        await worker.ask("suspend", uid="a1")
        await stands.arrival()
        os.kill(worker.sandbox_pid(), signal.SIGKILL)
        status = await worker.reach("a1", "Failed")
        assert status["error"]["reason"] == "SandboxDied"
        assert worker.snapshots("a1") == []
        assert worker.left() == []


async def test_a_sandbox_killed_while_its_snapshot_is_confirmed_leaves_a_whole_one_or_none(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        pid = worker.sandbox_pid()
        worker.gates.on("replace manifest.json", lambda: os.kill(pid, signal.SIGKILL))
        await worker.ask("suspend", uid="a1")
        status = await worker.status_when("a1", lambda status: status["state"] in {"Suspended", "Failed"})
        # Dead before the proof is heard of is dead; either way what is there is whole, and good if it is named.
        assert all((path / "manifest.json").exists() for path in worker.snapshots("a1"))
        if status["lastGoodSnapshot"]:
            await worker.resume("a1")
            await worker.counted_on("a1", "c1")


@pytest.mark.parametrize("while_", ["Running", pytest.param("Suspending", marks=pytest.mark.long)])
async def test_a_sandbox_that_hangs_is_stopped_within_its_grace_and_a_margin(tmp_path, rootfs, while_):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), terminationGracePeriodSeconds=1))
        pid = worker.sandbox_pid()
        os.kill(pid, signal.SIGSTOP)
        if while_ == "Suspending":
            await worker.ask("suspend", uid="a1")
        started = anyio.current_time()
        await worker.stop("a1")
        assert anyio.current_time() - started < 45  # it takes some 6 s where nothing else goes on
        assert worker.left() == []


@pytest.mark.long
async def test_a_hung_actor_holds_up_no_other(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("hung", counting("c1", rootfs), terminationGracePeriodSeconds=0))
        os.kill(worker.sandbox_pid(), signal.SIGSTOP)
        await worker.ask("suspend", uid="hung")
        await worker.start(assignment("a2", counting("c1", rootfs)))
        await worker.suspend("a2")
        await worker.resume("a2")
        assert (await worker.status("hung"))["state"] == "Suspending"
        await worker.stop("a2")
        await worker.stop("hung")
