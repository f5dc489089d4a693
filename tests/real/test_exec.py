"""`greenroom exec` with real gVisor: streams, signals, exit codes, and that nothing of it spoils a snapshot."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
from functools import partial

import pytest

from sim.mock.layout import TOOLKIT
from tests.real.process import ENVIRONMENT, GREENROOM, SOON_S, WorkerProcess, wait_until
from tests.real.scenery import assignment, counting, running
from tests.sim.mock.nodes import make_node

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


class Window:
    """Our side of a terminal, at whose other side a client is."""

    def __init__(self, ours):
        self._ours, self.shown = ours, b""

    def resize(self, rows, columns):
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self._ours, keys)

    def until(self, text):
        """Read until it has shown this, after what was waited for before."""

        def look():
            if select.select([self._ours], [], [], 0)[0]:
                with contextlib.suppress(OSError):  # nobody is at the other side any more
                    self.shown += os.read(self._ours, 1 << 16)
            return text in self.shown

        wait_until(look)
        before, _, self.shown = self.shown.partition(text)
        return before


@contextlib.contextmanager
def at_terminal(worker, *command):
    """A client at a terminal of its own: its window, it itself, and how the terminal was before and is now."""
    ours, theirs = os.openpty()
    window, modes = Window(ours), partial(termios.tcgetattr, theirs)
    window.resize(33, 101)
    process = subprocess.Popen(
        argv(worker, "-it", "-c", "main", "--", *command),
        stdin=theirs, stdout=theirs, stderr=theirs, env={**ENVIRONMENT, "TERM": "vt100"}, start_new_session=True,
    )  # fmt: skip
    try:
        yield window, process, modes
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


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


def suspends_after_the_rest_was_killed(worker):
    """Whether what a command has left running keeps a suspend away, and nothing does when that is gone."""
    worker.ask("suspend", uid="a1")
    was_refused = refused_suspend(worker) == "OperationInProgress"
    was_killed = executed(worker, "-c", "main", "--", "sh", "-c", KILL)[0] == 0
    wait_until(lambda: files_of_executions(worker) == [])
    return (was_refused, was_killed, suspends(worker)) == (True, True, "Suspended")


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
        wait_until(lambda: b"sleep 4242" in processes_inside(worker))
        process.kill()
        wait_until(lambda: b"sleep 4242" not in processes_inside(worker))
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"


def test_what_a_command_leaves_running_with_its_output_open_is_told_and_keeps_a_suspend_away(worker):
    code, out, err = executed(worker, "-c", "main", "--", "sh", "-c", "trap '' HUP; sleep 4242 & trap - HUP; echo out")
    assert (code, out) == (0, b"out\n")
    assert "has its output still open" in err
    assert suspends_after_the_rest_was_killed(worker)


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


def test_at_a_terminal_a_shell_is_told_size_and_kind_of_ours_which_is_as_it_was_afterwards(worker):
    with at_terminal(
        worker, "sh", "-c", 'stty size; echo kind $TERM; echo ready; read line; echo "<$line>"; exit 7'
    ) as (
        window,
        process,
        modes,
    ):
        before = modes()
        assert window.until(b"ready\r\n").replace(b"\r\n", b" ").split() == [b"33", b"101", b"kind", b"vt100"]
        assert modes() != before
        window.type(b"words\x7f\r")  # line editing is the terminal's inside: the last letter is taken back
        window.until(b"<word>\r\n")
        assert process.wait(timeout=SOON_S) == 7
        assert modes() == before
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"
    assert worker.become("a1", "resume", "Running")["error"] is None


def test_at_a_terminal_keys_that_are_signals_and_a_new_size_reach_the_command_inside(worker):
    traps = "trap 'echo sized $(stty size)' WINCH; trap 'echo interrupted; exit 5' INT"
    with at_terminal(worker, "sh", "-c", f"{traps}; echo ready; while :; do sleep 0.05; done") as (window, process, _):
        window.until(b"ready\r\n")
        window.resize(44, 122)
        process.send_signal(signal.SIGWINCH)  # the kernel sends it to whoever is in the foreground of a terminal
        window.until(b"sized 44 122\r\n")
        window.type(b"\x03")
        window.until(b"interrupted\r\n")
        assert process.wait(timeout=SOON_S) == 5


def test_at_a_terminal_a_client_that_is_killed_takes_the_command_along_and_a_signal_reaches_it(worker):
    with at_terminal(worker, "sh", "-c", "echo ready; exec sleep 4242") as (window, process, _):
        window.until(b"ready\r\n")
        wait_until(lambda: b"sleep 4242" in processes_inside(worker))
        worker.ask("suspend", uid="a1")
        assert refused_suspend(worker) == "OperationInProgress"
        process.kill()
        wait_until(lambda: b"sleep 4242" not in processes_inside(worker))
    with at_terminal(worker, "sh", "-c", "echo ready; exec sleep 4242") as (window, process, modes):
        window.until(b"ready\r\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SOON_S) == 128 + signal.SIGTERM
        assert modes()[3] & termios.ICANON  # as a terminal is before anybody asks for another mode
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends(worker) == "Suspended"


def test_what_has_its_terminal_still_open_keeps_a_suspend_away_also_when_the_other_side_is_closed(worker):
    with at_terminal(worker, "sh", "-c", "trap '' HUP; sleep 4242 & trap - HUP; echo out") as (window, process, _):
        window.until(b"has its output still open")
        assert process.wait(timeout=SOON_S) == 0
    wait_until(lambda: files_of_executions(worker) == [])
    assert suspends_after_the_rest_was_killed(worker)


def test_at_a_terminal_a_container_with_a_gpu_has_keys_too_and_can_make_no_device_node(tmp_path, rootfs):
    node = make_node(tmp_path / "node", "--gpus=1").directory
    places = ("--dev-root", node, "--proc-root", node / "proc", "--driver-root", node / "driver")
    worker = WorkerProcess(tmp_path, (*map(str, places), "--toolkit-dir", str(node / TOOLKIT), "--nvproxy", "off"))
    claim = {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "env": [{"name": "PATH", "value": "/bin"}]}
    try:
        worker.begin()
        worker.start(assignment("a1", counting("main", rootfs, **claim)))
        with at_terminal(worker, "sh", "-c", 'mknod /tmp/node c 195 7; read line; echo "<$line>"') as (
            window,
            process,
            _,
        ):
            window.until(b"Operation not permitted\r\n")
            window.type(b"words\r")
            window.until(b"<words>\r\n")
            assert process.wait(timeout=SOON_S) == 0
        wait_until(lambda: files_of_executions(worker) == [])
        assert suspends(worker) == "Suspended"
    finally:
        worker.give_up()


def test_at_no_terminal_there_is_none_for_the_command_either(worker):
    code, out, err = executed(worker, "-t", "-c", "main", "--", "sh")
    assert (code, out) == (1, b"")
    assert err.splitlines()[-1] == "error: InvalidRequest: -t wants a terminal, and stdin is none"
    assert "kubectl exec -it" in err


def test_a_drain_ends_a_command_at_a_terminal_which_is_as_it_was(worker):
    with at_terminal(worker, "sh", "-c", "echo ready; exec sleep 4242") as (window, process, modes):
        window.until(b"ready\r\n")
        assert not modes()[3] & termios.ICANON
        assert worker.end() == 0
        process.wait(timeout=SOON_S)
        assert modes()[3] & termios.ICANON
