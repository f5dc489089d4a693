"""Ends that nobody asked for nicely: whatever stops the worker or its client, no sandbox outlives it."""

import json
import os
import shutil
import signal
import subprocess

import anyio
import pytest

from supervisor.host.composition import open_host_ports
from supervisor.running import run_worker
from tests.real.gates import Gates
from tests.real.onlookers import our_children, pids_below
from tests.real.process import ENVIRONMENT, GREENROOM, WorkerProcess, wait_until
from tests.real.scenery import assignment, counting, running, write_assignment
from tests.real.stage import RealWorker, eventually, is_ready, open_worker, settings_in

pytestmark = pytest.mark.runsc


@pytest.mark.anyio
@pytest.mark.parametrize("state", ["Creating", "Running"])
async def test_a_worker_that_is_cancelled_leaves_no_sandbox(tmp_path, rootfs, state):
    settings, gates, before = settings_in(tmp_path), Gates(), our_children()
    async with open_host_ports(roots=(settings.state_dir, settings.run_dir)) as ports:
        async with anyio.create_task_group() as group:
            group.start_soon(run_worker, gates.around(ports), settings)
            worker = RealWorker(settings=settings, net=ports.net, gates=gates)
            await is_ready(worker)
            if state == "Creating":
                gates.close("after create")
            await worker.submit(assignment("a1", counting("c1", rootfs)))
            if state == "Running":
                await worker.reach("a1", state)
            assert await eventually(lambda: pids_below(worker.state.root))
            group.cancel_scope.cancel()
        assert worker.left() == []
        # The stubs of a sandbox die a moment after it, and nobody takes them once the ports are closed.
        await eventually(lambda: our_children() <= before)


def test_a_terminal_that_is_closed_ends_no_actor(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path)
    worker.begin()
    try:
        worker.start(assignment("a1", counting("c1", rootfs)))
        os.kill(worker.running.pid, signal.SIGHUP)
        wait_until(lambda: b"SIGHUP" in worker.log.read_bytes())
        assert worker.status_file("a1")["state"] == "Running"
    finally:
        worker.end()
    assert pids_below(tmp_path) == []


def test_the_log_of_a_container_that_never_stops_writing_has_an_end(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path)
    worker.begin()
    try:
        worker.start(assignment("a1", running("c1", rootfs, "sh", "-c", "while :; do echo spam; done")))
        wait_until(lambda: worker.state.actor("a1").log("c1").stat().st_size > 1 << 20)
        argv = [*GREENROOM, "logs", "--run-dir", str(worker.run_dir), "a1"]
        out = subprocess.run(argv, capture_output=True, env=ENVIRONMENT, timeout=300, check=True).stdout
        # The first line may be the rest of one whose beginning is gone.
        assert out.partition(b"\n")[2].startswith(b"spam\nspam\n")
    finally:
        worker.end()


@pytest.mark.anyio
async def test_a_file_that_was_refused_because_of_the_world_is_admitted_once_the_world_is_right(tmp_path, rootfs):
    assignments = tmp_path / "assignments"
    assignments.mkdir()
    late = tmp_path / "late"
    async with open_worker(tmp_path, assignments=assignments) as worker:
        write_assignment(assignments, assignment("a1", counting("c1", late)))
        refusal = worker.state.refused / "a1.json.json"
        await eventually(refusal.exists)
        assert [problem["reason"] for problem in json.loads(refusal.read_bytes())["problems"]] == ["RootfsNotFound"]
        # Not before all of it is there: the worker looks at it whenever it likes.
        await anyio.to_thread.run_sync(lambda: shutil.copytree(rootfs, tmp_path / "copied", symlinks=True))
        (tmp_path / "copied").rename(late)
        assert (await worker.reach("a1", "Running"))["error"] is None
        await eventually(lambda: not refusal.exists())
