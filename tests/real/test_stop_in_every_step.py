"""A stop ends an actor for good in whatever step it is, and nothing is left of it."""

import os
import signal

import anyio
import pytest

from tests.real.scenery import assignment, counting, running
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

LONG = pytest.mark.long

# The state, and the gate (and how many pass it before) at which an operation is in that state.
STARTING = [
    ("Assigned", "read assignment.json", 1),
    ("Creating", "make_tree sandboxes", 0),
    pytest.param("Creating", "replace sandbox.json", 0, marks=LONG),
    ("Creating", "before create", 0),
    ("Creating", "after create", 0),
    pytest.param("Creating", "before create", 1, marks=LONG),
    pytest.param("Creating", "after create", 2, marks=LONG),
    ("Creating", "before start", 0),
    ("Creating", "before start", 1),
    ("Creating", "after start", 1),
    pytest.param("Creating", "replace sandbox.json", 2, marks=LONG),
    ("Verifying", "before state", 0),
    pytest.param("Verifying", "after state", 1, marks=LONG),
]
RESTORING = [
    pytest.param("Restoring", "make_tree sandboxes", 0, marks=LONG),
    ("Restoring", "before restore", 0),
    ("Restoring", "after restore", 0),
    ("Restoring", "before restore", 1),
    pytest.param("Restoring", "after restore", 1, marks=LONG),
    pytest.param("Restoring", "before restore", 2, marks=LONG),
    ("Verifying", "before state", 0),
]
SUSPENDING = [
    ("Suspending", "before pause", 0),
    ("Suspending", "after pause", 0),
    pytest.param("Suspending", "before state", 0, marks=LONG),
    ("Suspending", "before checkpoint", 0),
    ("Suspending", "after checkpoint", 0),
    pytest.param("Suspending", "sync_tree snapshots", 0, marks=LONG),
    ("Suspending", "replace manifest.json", 0),
]


@pytest.mark.parametrize(("state", "gate", "skip"), STARTING)
async def test_a_stop_while_it_starts(tmp_path, rootfs, state, gate, skip):
    async with open_worker(tmp_path) as worker:
        stands = worker.gates.close(gate, skip=skip)
        await worker.submit(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await stands.arrival()
        assert await _stopped(worker) == (state, None, [])


@pytest.mark.parametrize(("state", "gate", "skip"), RESTORING)
async def test_a_stop_while_it_resumes_keeps_the_snapshot(tmp_path, rootfs, state, gate, skip):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await worker.suspend("a1")
        kept = worker.snapshots("a1")
        stands = worker.gates.close(gate, skip=skip)
        await worker.ask("resume", uid="a1")
        await stands.arrival()
        assert await _stopped(worker) == (state, None, [])
        assert worker.snapshots("a1") == kept


@pytest.mark.parametrize(("state", "gate", "skip"), SUSPENDING)
async def test_a_stop_while_it_is_suspended_leaves_no_half_snapshot_and_tells_the_containers(
    tmp_path, rootfs, state, gate, skip
):
    tells = running("tells", rootfs, "sh", "-c", 'trap "echo told; exit 0" TERM; echo up; while :; do sleep 0.02; done')
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", tells, counting("c2", rootfs)))
        await worker.status_when("a1", lambda _: worker.lines("a1", "tells"))
        stands = worker.gates.close(gate, skip=skip)
        await worker.ask("suspend", uid="a1")
        await stands.arrival()
        assert await _stopped(worker) == (state, None, [])
        assert worker.snapshots("a1") == []
        assert worker.lines("a1", "tells") == ["up", "told"]


async def test_a_stop_while_it_is_released_waits_for_that_and_keeps_the_snapshot(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        stands = worker.gates.close("remove_tree sandboxes")
        await worker.ask("suspend", uid="a1")
        await stands.arrival()
        assert (await worker.status("a1"))["state"] == "Releasing"
        await worker.ask("stop", uid="a1")
        assert (await worker.status("a1"))["state"] == "Releasing"
        stands.open()
        await worker.reach("a1", "Terminated")
        assert len(worker.snapshots("a1")) == 1
        assert worker.left() == []


async def test_a_stop_while_it_is_thawed(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        stands = worker.gates.close("before resume")
        worker.gates.on("before checkpoint", _fail)
        await worker.ask("suspend", uid="a1")
        await stands.arrival()
        assert (await worker.status("a1"))["state"] == "Thawing"
        await worker.ask("stop", uid="a1")
        stands.open()
        await worker.reach("a1", "Terminated")
        assert worker.snapshots("a1") == []
        assert worker.left() == []


async def test_a_stop_while_it_is_rolled_back(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        stands = worker.gates.close("remove_tree sandboxes")
        os.kill(worker.sandbox_pid(), signal.SIGKILL)
        await stands.arrival()
        assert (await worker.status("a1"))["state"] == "RollingBack"
        await worker.ask("stop", uid="a1")
        stands.open()
        await worker.reach("a1", "Terminated")
        assert worker.left() == []


async def test_a_second_stop_changes_nothing(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        stands = worker.gates.close("before kill")
        await worker.ask("stop", uid="a1")
        await stands.arrival()
        assert await worker.ask("stop", uid="a1") == {"state": "Stopping"}
        stands.open()
        await worker.reach("a1", "Terminated")
        assert await worker.ask("stop", uid="a1") == {"state": "Terminated"}


@pytest.mark.parametrize("rests", ["Running", "Suspended", "Failed", "BackingOff"])
async def test_a_stop_while_it_rests(tmp_path, rootfs, rests):
    async with open_worker(tmp_path) as worker:
        failing = running("c1", rootfs, "sh", "-c", "exit 3")
        match rests:
            case "Failed":
                await worker.submit(assignment("a1", failing))
            case "BackingOff":
                await worker.submit(assignment("a1", failing, restartPolicy="OnFailure"))
            case _:
                await worker.start(assignment("a1", counting("c1", rootfs)))
        if rests == "Suspended":
            await worker.ask("suspend", uid="a1")
        await worker.reach("a1", rests)
        await worker.stop("a1")
        assert worker.left() == []
        assert len(worker.snapshots("a1")) == (rests == "Suspended")


@pytest.mark.long
@pytest.mark.parametrize("operation", ["start", "suspend", "resume"])
async def test_a_stop_at_any_moment(tmp_path, rootfs, operation):
    """Not at a gate but while the real commands run: every 15 ms of the operation."""
    async with open_worker(tmp_path) as worker:
        for moment in range(45):
            uid = f"a{moment}"
            document = assignment(uid, counting("c1", rootfs), counting("c2", rootfs), terminationGracePeriodSeconds=1)
            await worker.submit(document)
            if operation != "start":
                await worker.reach(uid, "Running")
                await worker.ask("suspend", uid=uid)
            if operation == "resume":
                await worker.reach(uid, "Suspended")
                await worker.ask("resume", uid=uid)
            for _ in range(moment):
                await anyio.sleep(0.015)
            await worker.stop(uid)
            assert worker.left() == [], f"stopped after {moment * 15} ms of {operation}"
            assert all((path / "manifest.json").exists() for path in worker.snapshots(uid))


async def _stopped(worker):
    """Stop the actor, which stands at a closed gate; returns the state it was in, its error and what is left."""
    state = (await worker.status("a1"))["state"]
    worker.gates.closed.clear()
    status = await worker.stop("a1")
    return state, status["error"], worker.left()


def _fail():
    raise OSError("a checkpoint that could not even be tried")
