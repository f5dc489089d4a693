"""A life on a gVisor of today, built from its module: the one that real nodes will have, beside the measured one."""

import signal
from pathlib import Path

import pytest

from tests.go_programs import runsc
from tests.real.process import WorkerProcess
from tests.real.scenery import assignment, counting, goes_on, whole_lines

pytestmark = [pytest.mark.runsc, pytest.mark.campaign]


@pytest.fixture
def worker(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path, ("--runsc", str(runsc())))
    yield worker
    worker.give_up()


def mounts_below(directory: object) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {directory}/" in line]


def test_an_actor_is_suspended_and_goes_on_in_a_fresh_sandbox_and_nothing_is_left(worker, rootfs, tmp_path):
    worker.begin()
    worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
    worker.become("a1", "suspend", "Suspended")
    assert worker.left() == []
    worker.become("a1", "resume", "Running")
    worker.become("a1", "stop", "Terminated")
    for name in ("c1", "c2"):
        assert goes_on(whole_lines(worker.state.actor("a1").logs / f"{name}.log"))
    assert worker.left() == []
    assert mounts_below(tmp_path) == []
    assert worker.end() == 0


def test_a_killed_workers_leftovers_are_ended_by_the_next(worker, rootfs, tmp_path):
    worker.begin()
    worker.start(assignment("a1", counting("c1", rootfs)))
    worker.running.kill()
    worker.running.wait(timeout=60)
    worker.begin()
    assert worker.left() == []
    assert mounts_below(tmp_path) == []
    assert worker.end(signal.SIGTERM) == 0
    assert list(worker.state.sandboxes.iterdir()) == []
