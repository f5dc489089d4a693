"""`greenroom exec` with real gVisor: streams, signals, exit codes, and that nothing of it spoils a snapshot."""

import contextlib
import os
import signal
import subprocess

import pytest

from tests.real.process import ENVIRONMENT, GREENROOM, SOON_S, WorkerProcess, wait_until
from tests.real.scenery import assignment, counting, running

pytestmark = pytest.mark.runsc


KILL = "kill $(busybox ps | busybox awk '/sleep 424[2]/ { print $1 }')"


@pytest.fixture
def worker(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path)
    try:
        worker.begin()
        worker.start(assignment("a1", counting("main", rootfs), counting("side", rootfs)))
        yield worker
    finally:
        worker.give_up()


def argv(worker, *arguments):
    return [*GREENROOM, "exec", "--run-dir", str(worker.run_dir), "a1", *arguments]


def executed(worker, *arguments, given=b""):
    done = subprocess.run(
        argv(worker, *arguments), input=given, capture_output=True, env=ENVIRONMENT, timeout=SOON_S, check=False
    )
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr.decode()


@contextlib.contextmanager
def executing(worker, script):
    """A command inside that has written its first line, `begun`."""
    process = subprocess.Popen(
        argv(worker, "-c", "main", "--", "sh", "-c", f"echo begun; {script}"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, bufsize=0,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def processes_inside(worker):
    return executed(worker, "-c", "main", "--", "busybox", "ps")[1]


def suspends(worker):
    worker.ask("suspend", uid="a1")
    return worker.reach("a1", "Suspended")["state"]


def refused_suspend(worker):
    """The reason of a suspend that came to nothing: the actor runs again."""

    def look():
        status = worker.ask("status", uid="a1")
        return status["state"] == "Running" and status["error"]

    return wait_until(look)["reason"]


def files_of_executions(worker):
    return [path.name for path in worker.state.sandboxes.glob("*/greenroom-exec-*")]


def test_streams_and_the_exit_code_are_passed_on_and_a_snapshot_is_good_afterwards(worker):
    much = os.urandom(100_000)
    code, out, err = executed(worker, "-c", "main", "--", "sh", "-c", "cat; echo err >&2; exit 7", given=much)
    # More lines may follow: gVisor closes streams when it likes, and one that is open for long is told.
    assert (code, out, err.splitlines()[:1]) == (7, much, ["err"])
    assert executed(worker, "-c", "side", "--", "sh", "-c", "echo $$ >&2; kill -9 $$")[0] == 128 + 9
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"
    assert worker.become("a1", "resume", "Running")["error"] is None


def test_what_cannot_be_executed_is_a_reason(worker):
    def refused(reason, *arguments):
        code, out, err = executed(worker, *arguments)
        assert (code, out) == (1, b"")
        assert err.splitlines()[-1].startswith(f"error: {reason}: "), err

    refused("CommandNotFound", "-c", "main", "--", "/no/such/command")
    refused("InvalidRequest", "-c", "other", "--", "true")
    refused("InvalidRequest", "--", "true")  # there are two
    refused("InvalidRequest", "sh", "-c", "exit 3")  # its -c becomes ours
    refused("InvalidRequest", "-c", "main", "--", "")
    worker.become("a1", "suspend", "Suspended")
    refused("OperationInProgress", "-c", "main", "--", "true")


def test_a_suspend_is_refused_while_a_command_runs_and_not_when_it_has_ended(worker):
    with executing(worker, "sleep 1000") as process:
        worker.ask("suspend", uid="a1")
        assert refused_suspend(worker) == "OperationInProgress"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SOON_S) == 128 + signal.SIGTERM
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"


def test_a_command_whose_client_was_killed_is_killed_too(worker):
    with executing(worker, "sleep 4242") as process:
        assert b"sleep 4242" in processes_inside(worker)
        process.kill()
        wait_until(lambda: b"sleep 4242" not in processes_inside(worker))
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"


def test_what_a_command_leaves_running_with_its_output_open_is_told_and_keeps_a_suspend_away(worker):
    code, out, err = executed(worker, "-c", "main", "--", "sh", "-c", "(trap '' HUP; sleep 4242) & echo out")
    assert (code, out) == (0, b"out\n")
    assert "has its output still open" in err
    worker.ask("suspend", uid="a1")
    assert refused_suspend(worker) == "OperationInProgress"
    assert executed(worker, "-c", "main", "--", "sh", "-c", KILL)[0] == 0
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"


def test_a_drain_ends_commands_and_suspends_the_actor(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path, ("--on-drain", "suspend"))
    try:
        worker.begin()
        worker.start(assignment("a1", running("main", rootfs, "sleep", "1000")))
        with executing(worker, "sleep 4242") as process:
            assert worker.end() == 0
            process.wait(timeout=SOON_S)
        assert worker.status_file("a1")["state"] == "Suspended"
    finally:
        worker.give_up()
