"""A command in the foreground: streams, signals and the exit code are passed on, also to and from those who go away."""

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from actors.ports import CLIENT_STREAM, ProcessIdentity
from supervisor.host import procfs
from tests.needs import ROOT

BOUND_S = 60.0
DRIVER = """
import json, os, sys
from pathlib import Path
from supervisor.host.foreground import run_in_foreground
directory, stdin, *argv = sys.argv[1:]
pid_file = Path(directory, "pid")
def pass_on(signum):
    os.kill(int(pid_file.read_text()), signum)
ended = run_in_foreground(
    argv, {"PATH": os.environ["PATH"], "DIRECTORY": directory}, stdin=Path(stdin) if stdin else None,
    streams=Path(directory, "greenroom-exec-1"), pass_on=pass_on,
)
unwritten = ended.unwritten and ended.unwritten.errno
Path(directory, "ended").write_text(json.dumps([ended.code, ended.has_left_something, unwritten]))
"""


def shell(directory, script, *, stdin="", before=""):
    """The argv of a process that runs a shell in its foreground, which has written its pid into a file."""
    return [
        sys.executable,
        "-c",
        before + DRIVER,
        str(directory),
        stdin,
        "/bin/sh",
        "-c",
        f'echo $$ >"$DIRECTORY/pid"; {script}',
    ]


def end_shell(directory):
    """End the shell, and what it has left running: it is in a session of its own, where no end of ours ends it."""
    with suppress(ProcessLookupError, FileNotFoundError, ValueError):
        os.killpg(int((directory / "pid").read_text()), signal.SIGKILL)


def ended(directory):
    """Its exit code, whether it left something, and the number of the error at our stdout."""
    return json.loads((directory / "ended").read_text())


def ran(directory, script, *, given=b"", stdin="", before=""):
    """Run it to its end: its exit code and whether it left something; stdout and stderr."""
    argv = shell(directory, script, stdin=stdin, before=before)
    try:
        done = subprocess.run(argv, input=given, capture_output=True, cwd=ROOT, timeout=BOUND_S, check=False)
    finally:
        end_shell(directory)
    assert done.returncode == 0, done.stderr
    code, left, unwritten = ended(directory)
    assert unwritten is None
    assert not list(directory.glob("greenroom-exec-*"))
    return code, left, done.stdout, done.stderr


@contextmanager
def running(directory, prepared, script, **streams):
    """One that has begun, after what it prepares: its first line is `begun`."""
    argv = shell(directory, f"{prepared}; echo begun; {script}")
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, **streams)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield process
    finally:
        process.kill()
        end_shell(directory)
        process.communicate()


def test_streams_and_the_exit_code_are_passed_on(tmp_path):
    assert ran(tmp_path, "cat; echo err >&2; exit 7", given=b"in\n\0\xff") == (7, False, b"in\n\0\xff", b"err\n")


def test_much_is_passed_on_both_ways_at_once(tmp_path):
    much = os.urandom(1 << 20) * 4
    assert ran(tmp_path, "cat", given=much) == (0, False, much, b"")


def test_the_end_of_our_input_is_the_end_of_its_and_who_reads_none_is_not_waited_for(tmp_path):
    assert ran(tmp_path, "wc -c", given=b"12345")[2].strip() == b"5"
    assert ran(tmp_path, "exec true", given=b"x" * (1 << 20))[:2] == (0, False)


def test_a_file_can_be_its_input(tmp_path):
    (tmp_path / "given").write_bytes(b"from a file")
    assert ran(tmp_path, "cat", given=b"ours", stdin=str(tmp_path / "given")) == (0, False, b"from a file", b"")


def test_a_death_by_signal_is_128_and_its_number(tmp_path):
    assert ran(tmp_path, "kill -KILL $$")[0] == 128 + signal.SIGKILL


def test_what_it_leaves_running_is_told_and_not_waited_for(tmp_path):
    assert ran(tmp_path, "sleep 1000 & echo out") == (0, True, b"out\n", b"")


def test_what_it_leaves_writing_for_ever_is_not_waited_for_either(tmp_path):
    code, left, out, _err = ran(tmp_path, "while echo more; do sleep 0.02; done & echo out")
    assert (code, left, b"out\n" in out) == (0, True, True)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on_and_end_us_only_with_it(tmp_path, signum):
    heard = f'trap "echo heard; exit 5" {signum.name[3:]}'
    with running(tmp_path, heard, "while :; do sleep 0.05; done") as process:
        process.send_signal(signum)
        out, _err = process.communicate(timeout=BOUND_S)
    assert (out, ended(tmp_path)) == (b"heard\n", [5, False, None])


def test_when_nobody_reads_our_output_nobody_reads_its(tmp_path):
    with running(tmp_path, 'trap "" PIPE', "while echo more 2>/dev/null; do :; done; exit 3") as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(timeout=BOUND_S)
        process.stdout = None
    assert ended(tmp_path) == [3, False, None]


@pytest.mark.parametrize("script", ["echo more", 'trap "" PIPE; while echo more 2>/dev/null; do :; done'])
def test_when_our_output_takes_no_more_the_command_runs_to_its_end_and_why_is_told(tmp_path, script):
    argv = shell(tmp_path, f"{script}; exit 3")
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=full)
    try:
        assert process.wait(timeout=BOUND_S) == 0
    finally:
        process.kill()
        end_shell(tmp_path)
        process.wait()
    assert ended(tmp_path) == [3, False, errno.ENOSPC]


def test_an_output_that_somebody_made_non_blocking_is_waited_for(tmp_path):
    never_fits = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 4096); os.set_blocking(1, False)"
    done = ran(tmp_path, "head -c 1000000 /dev/zero; exit 3", before=never_fits)
    assert done == (3, False, bytes(1_000_000), b"")


def test_a_command_that_cannot_be_run_and_streams_that_cannot_be_made_are_errors(tmp_path):
    for directory, program in ((tmp_path, "/nowhere/program"), (tmp_path / "absent", "/bin/true")):
        argv = [sys.executable, "-c", DRIVER, str(directory), "", program]
        done = subprocess.run(argv, capture_output=True, cwd=ROOT, timeout=BOUND_S, check=False)
        assert b"FileNotFoundError" in done.stderr
        assert not list(tmp_path.glob("greenroom-exec-*"))


@pytest.mark.anyio
async def test_who_has_a_stream_of_a_clients_command_open_is_seen(ports, tmp_path):
    path = tmp_path / f"{CLIENT_STREAM}1.stdout"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    path.unlink()
    try:
        stat = procfs.read_stat(os.getpid())
        assert stat is not None
        ourselves = ProcessIdentity(pid=os.getpid(), start_ticks=stat.start_ticks)
        assert await ports.processes.holds_output(ourselves)
    finally:
        os.close(reader)
    assert not await ports.processes.holds_output(ourselves)
