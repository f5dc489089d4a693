"""Wakeup probes: an actor is Running when they have answered, and goes back to where it was when they do not."""

import pytest

from tests.real.scenery import COUNT, assignment, running
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


def serving_after(name, rootfs, lines, probe, *, timeout_s, **more):
    """A counter that serves, which is a file in its /tmp, after so many lines."""
    command = COUNT.replace("sleep", f"[ $i -ne {lines} ] || : > /tmp/serves; sleep")
    return running(name, rootfs, "sh", "-c", command, wakeupProbe={"exec": probe, "timeoutSeconds": timeout_s}, **more)


NEVER = 1_000_000
SERVES = ["sh", "-c", "test -e /tmp/serves"]


async def test_an_actor_is_running_when_its_late_probe_has_passed_and_not_before(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", serving_after("c1", rootfs, 20, SERVES, timeout_s=60)))
        assert len(worker.lines("a1", "c1")) >= 20
        await worker.suspend("a1")
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")
        await worker.stop("a1")


async def test_a_cold_start_whose_probe_never_passes_fails(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.submit(assignment("a1", serving_after("c1", rootfs, NEVER, SERVES, timeout_s=2)))
        status = await worker.reach("a1", "Failed")
        assert (status["error"]["reason"], status["error"]["subject"]) == ("RestoredNotServing", "c1")
        assert worker.left() == []


async def test_a_resume_whose_probe_never_passes_goes_back_to_suspended_and_can_be_tried_again(tmp_path, rootfs):
    # A file that an actor keeps in its own tmpfs: it serves until it is told that it woke up elsewhere.
    once = ["sh", "-c", "test -e /tmp/serves && rm /tmp/serves"]
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", serving_after("c1", rootfs, 1, once, timeout_s=8)))
        good = (await worker.suspend("a1"))["lastGoodSnapshot"]
        for _ in range(2):
            await worker.ask("resume", uid="a1")
            status = await worker.reach("a1", "Suspended")
            assert status["error"]["reason"] == "RestoredNotServing"
            assert status["lastGoodSnapshot"] == good
            assert worker.left() == []


@pytest.mark.long
async def test_a_probe_that_hangs_is_gone_before_the_actor_is_suspended(tmp_path, rootfs):
    # The first try hangs, the second passes. Measured on runsc 20240729: what was executed and still lives is written
    # into a checkpoint, which then can never be restored.
    hangs_once = ["sh", "-c", "test -e /tmp/tried && exit 0; touch /tmp/tried; exec sleep 1000"]
    probe = {"exec": hangs_once, "timeoutSeconds": 60}
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", running("c1", rootfs, "sh", "-c", COUNT, wakeupProbe=probe)))
        await worker.suspend("a1")
        saved = worker.lines("a1", "c1")
        await worker.resume("a1")
        assert (await worker.counted_on("a1", "c1"))[: len(saved)] == saved


async def test_a_probe_that_leaves_something_running_refuses_the_suspend_and_the_actor_runs_on(tmp_path, rootfs):
    # Measured on runsc 20240729: it is saved without a complaint, and never restored, for want of the probe's stdout.
    probe = {"exec": ["sh", "-c", "sleep 1000 & exit 0"], "timeoutSeconds": 60}
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", running("c1", rootfs, "sh", "-c", COUNT, wakeupProbe=probe)))
        await worker.ask("suspend", uid="a1")
        status = await worker.status_when("a1", lambda status: status["error"] and status["state"] == "Running")
        assert status["error"]["reason"] == "OperationInProgress"
        assert worker.snapshots("a1") == []
        await worker.counted_on("a1", "c1")
        await worker.stop("a1")
