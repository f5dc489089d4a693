"""`greenroom run` as a process: signalled, killed, started again, started twice."""

import json
import os
import signal
from contextlib import suppress

import pytest

from tests.real.onlookers import pids_below, seen_below
from tests.real.process import WorkerProcess, greenroom, wait_until
from tests.real.scenery import assignment, counting, whole_lines, write_assignment

pytestmark = pytest.mark.runsc


@pytest.fixture
def worker(tmp_path, rootfs, slow):
    worker = WorkerProcess(tmp_path, ("--runsc", str(slow.path)))
    yield worker
    worker.give_up()


@pytest.mark.parametrize(("signum", "on_drain"), [(signal.SIGTERM, "stop"), (signal.SIGINT, "suspend")])
def test_a_worker_that_is_asked_to_end_leaves_cleanly_whatever_its_actors_do(worker, slow, rootfs, on_drain, signum):
    worker.begin("--on-drain", on_drain, "--drain-timeout", 600)
    uids = ("running", "suspending", "suspended")
    worker.start(*(assignment(uid, counting("c1", rootfs)) for uid in uids))
    worker.become("suspended", "suspend", "Suspended")
    slow.hold("checkpoint")
    worker.ask("suspend", uid="suspending")
    slow.await_arrival("checkpoint")
    slow.hold("create")
    worker.submit(assignment("starting", counting("c1", rootfs)))
    slow.await_arrival("create")
    worker.running.send_signal(signum)
    wait_until(lambda: b'"draining"' in worker.log.read_bytes())
    # A suspend that has begun is finished; what had only begun to start is undone.
    slow.let_go("checkpoint")
    assert worker.running.wait(timeout=600) == 0
    worker.process = None
    assert worker.left() == []
    states = {uid: worker.status_file(uid)["state"] for uid in (*uids, "starting")}
    assert states == {
        "running": {"stop": "Terminated", "suspend": "Suspended"}[on_drain],
        "suspending": "Suspended",
        "suspended": "Suspended",
        "starting": "Failed",
    }
    assert worker.status_file("starting")["error"]["reason"] == "WorkerDraining"
    assert not (worker.run_dir / "control.sock").exists()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_worker_that_is_asked_again_and_again_until_it_is_gone_still_leaves_cleanly(worker, rootfs, backend):
    worker.begin("--backend", backend)
    worker.start(assignment("a1", counting("c1", rootfs)))
    running = worker.running
    while running.poll() is None:
        running.send_signal(signal.SIGTERM)
    assert worker.end() in {0, 1}  # 1 where 5 s are not enough for a busy machine; never the death by a signal
    assert worker.left() == []


def test_a_worker_whose_drain_takes_too_long_ends_what_hangs_and_leaves(worker, rootfs):
    worker.begin("--drain-timeout", 1)
    worker.start(assignment("hung", counting("c1", rootfs)), assignment("a2", counting("c1", rootfs)))
    for seen in seen_below(worker.state.root):
        with suppress(ProcessLookupError):  # a command that has ended meanwhile
            os.kill(seen.pid, signal.SIGSTOP)
    assert worker.end() == 1
    assert worker.log.read_text().splitlines()[-1].startswith("error: StepDeadlineExceeded: ")
    assert worker.left() == []


def test_a_killed_worker_is_followed_by_one_with_which_every_actor_goes_on(worker, rootfs):
    """tests/real/test_restarts.py kills one at every point there is."""
    worker.begin()
    uids = ("resumed", "running", "suspended")
    worker.start(*(assignment(uid, counting("c1", rootfs)) for uid in uids))
    good = worker.become("resumed", "suspend", "Suspended")["lastGoodSnapshot"]
    worker.become("resumed", "resume", "Running")
    worker.become("suspended", "suspend", "Suspended")
    assert worker.end(signal.SIGKILL) == -signal.SIGKILL
    assert pids_below(worker.state.root), "the sandboxes live on without their worker"

    worker.begin()
    states = {uid: worker.reach(uid, "Suspended" if uid == "suspended" else "Running") for uid in uids}
    assert [states[uid]["error"] for uid in uids] == [None, None, None]
    assert states["resumed"]["lastGoodSnapshot"] == good
    worker.become("suspended", "resume", "Running")
    for uid in uids:
        log = worker.state.actor(uid).log("c1")
        before = len(whole_lines(log))
        wait_until(lambda log=log, before=before: len(whole_lines(log)) > before + 3)
    assert worker.end() == 0
    assert worker.left() == []


def test_a_second_worker_on_the_same_state_directory_is_refused_and_harms_nothing(worker, tmp_path, rootfs):
    worker.begin()
    worker.start(assignment("a1", counting("c1", rootfs)))
    second = greenroom("run", "--state-dir", worker.state.root, "--run-dir", tmp_path / "other")
    assert second.returncode == 1
    assert second.stderr.splitlines()[-1].startswith("error: StateDirInUse: ")
    assert "Traceback" not in second.stderr
    assert worker.ask("status", uid="a1")["state"] == "Running"
    assert worker.end() == 0


def test_a_second_worker_on_the_same_run_directory_is_refused_and_the_first_still_answers(worker, tmp_path):
    worker.begin()
    second = greenroom("run", "--state-dir", tmp_path / "other", "--run-dir", worker.run_dir)
    assert second.returncode == 1
    hint, last = second.stderr.splitlines()[-2:]
    assert last.startswith(f"error: StateDirInUse: another worker listens at {worker.run_dir}/http.sock")
    assert "--run-dir" in hint
    assert worker.ask("status")["worker"]["ready"] is True
    assert worker.end() == 0


def test_a_worker_follows_its_directory_of_assignments(worker, tmp_path, rootfs):
    assignments = tmp_path / "assignments"
    assignments.mkdir()

    def await_state(uid, state):
        # Those who write files read files: a `wait` could come before the worker has seen what was written.
        path = worker.state.actor(uid).status
        wait_until(lambda: path.exists() and worker.status_file(uid)["state"] == state)

    write_assignment(assignments, assignment("first", counting("c1", rootfs)))
    worker.begin("--assignments", assignments)
    write_assignment(assignments, assignment("second", counting("c1", rootfs)))
    for uid in ("first", "second"):
        await_state(uid, "Running")
    write_assignment(assignments, assignment("first", counting("c1", rootfs), generation=2, desiredState="Suspended"))
    await_state("first", "Suspended")
    (assignments / "second.json").unlink()
    await_state("second", "Terminated")
    assert worker.status_file("first")["state"] == "Suspended"
    (assignments / "bad.json").write_text("{")
    wait_until((worker.state.refused / "bad.json.json").exists)
    refused = json.loads((worker.state.refused / "bad.json.json").read_text())
    assert refused["problems"][0]["reason"] == "MalformedDocument"
    assert worker.end() == 0


def test_a_runsc_that_is_none_or_too_old_is_named(tmp_path, rootfs):
    for text, reason in (
        ("echo hello", "RuntimeUnavailable"),
        ("echo runsc version release-20220101.0", "RuntimeTooOld"),
    ):
        path = tmp_path / "runsc"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        run = greenroom("run", "--state-dir", tmp_path / "state", "--run-dir", tmp_path / "run", "--runsc", path)
        assert run.returncode == 1
        assert run.stderr.splitlines()[-1].startswith(f"error: {reason}: ")
    absent = greenroom("run", "--state-dir", tmp_path / "s", "--run-dir", tmp_path / "r", "--runsc", tmp_path / "no")
    assert absent.stderr.splitlines()[-1].startswith("error: RuntimeUnavailable: ")
