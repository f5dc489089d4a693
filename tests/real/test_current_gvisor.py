"""A life on a gVisor of today, built from its module: the one that real nodes will have, beside the measured one."""

import signal
import subprocess
from pathlib import Path

import pytest

from actors.runsc import argv
from actors.runsc.checkpoint_flags import CUDA_FLAGS, parse_flags
from tests.go_programs import runsc
from tests.real.process import WorkerProcess, wait_until
from tests.real.scenery import COUNT, assignment, counting, goes_on, running, whole_lines

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


def test_new_arguments_on_a_kept_snapshot_are_refused_and_run_the_old_ones_where_that_is_forced(worker, rootfs):
    worker.begin()
    worker.start(assignment("a1", counting("c1", rootfs)))
    worker.become("a1", "suspend", "Suspended")
    saved = whole_lines(worker.state.actor("a1").logs / "c1.log")
    worker.become("a1", "stop", "Terminated")
    worker.submit(assignment("a1", running("c1", rootfs, "sh", "-c", COUNT.replace("$i;", "x$i;")), generation=2))
    error = worker.reach("a1", "Suspended")["error"]
    assert (error["reason"], error["subject"]) == ("BundleChanged", "c1: argument 2")
    worker.ask("resume", uid="a1", onDifference="Force")
    assert worker.reach("a1", "Running")["forced"] is True
    log = worker.state.actor("a1").logs / "c1.log"
    wait_until(lambda: len(whole_lines(log)) > len(saved))
    assert goes_on(whole_lines(log))
    worker.become("a1", "stop", "Terminated")
    assert worker.end() == 0


def test_its_checkpoint_has_the_flags_that_an_open_cuda_context_needs():
    said = subprocess.run([runsc(), *argv.help_of("checkpoint")], capture_output=True, check=True).stdout
    known = parse_flags(said)
    assert known is not None
    assert known >= CUDA_FLAGS
