"""A command at a terminal of its own: what ours is its window for, and that ours is as it was however it ended."""

import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from supervisor.host import procfs, terminal
from tests.needs import ROOT

BOUND_S = 60.0
DRIVER = """
import json, os, sys
from pathlib import Path
from supervisor.host.terminal import run_at_terminal
directory, given, *argv = sys.argv[1:]
def pass_on(signum):
    os.kill(int(Path(directory, "pid").read_text()), signum)
try:
    ended = run_at_terminal(
        argv, {"PATH": os.environ["PATH"], "DIRECTORY": directory},
        program=(given.encode(), 3) if given else None, pass_on=pass_on,
    )
except OSError as error:
    Path(directory, "ended").write_text(json.dumps(type(error).__name__))
else:
    Path(directory, "ended").write_text(json.dumps([ended.code, ended.has_left_something]))
"""


class Client:
    """A process at a terminal of its own, which runs a command at another one; we are at the other side of its own."""

    def __init__(self, directory, ours, theirs, process):
        self._directory, self._ours, self._theirs, self.process = directory, ours, theirs, process
        self._shown = b""

    @property
    def modes(self):
        return termios.tcgetattr(self._theirs)

    def type(self, keys):
        os.write(self._ours, keys)

    def resize(self, rows, columns):
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # as the kernel does to whoever is in the foreground

    def until(self, text):
        """What is shown before this, after what was waited for before."""
        until_s = time.monotonic() + BOUND_S
        while text not in self._shown:
            assert select.select([self._ours], [], [], max(0.0, until_s - time.monotonic()))[0], self._shown
            self._shown += os.read(self._ours, 1 << 16)
        before, _, self._shown = self._shown.partition(text)
        return before

    def hang_up(self):
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def ended(self):
        """Its exit code and whether it left something, or the error that kept it from running."""
        assert self.process.wait(timeout=BOUND_S) == 0
        return json.loads((self._directory / "ended").read_text())

    def close(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self._directory / "pid").read_text()), signal.SIGKILL)
        for fd in (self._ours, self._theirs):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def client(tmp_path):
    """Runs a shell's script, or a command, at a terminal."""
    clients = []

    def begin(script, *, given="", argv=None):
        ours, theirs = os.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
        shell = ["/bin/sh", "-c", f'echo $$ >"$DIRECTORY/pid"; {script}']
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path), given, *(argv or shell)],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        clients.append(Client(tmp_path, ours, theirs, process))
        return clients[-1]

    yield begin
    for each in clients:
        each.close()


def test_it_has_a_terminal_as_large_as_ours_that_it_controls(client):
    one = client("test -t 0 && test -t 1 && test -t 2 && stty size && ps -o tty= -p $$ && tty; exit 7")
    rows_columns, controlled, name = one.until(b"/dev/pts/").split(b"\r\n")
    assert (rows_columns, controlled.startswith(b"pts/"), name) == (b"33 101", True, b"")
    assert one.ended() == [7, False]


def test_keys_are_passed_on_as_they_are_and_what_the_terminal_makes_of_them_is_done_there(client):
    one = client(
        'echo ready; read -r line; echo "<$line>"; stty -icanon -echo; echo raw; dd bs=1 count=1 2>/dev/null | od -c'
    )
    one.until(b"ready\r\n")
    one.type(b"wordd\x7fs\r")
    one.until(b"<words>\r\n")
    one.until(b"raw\r\n")
    one.type(b"\x1b")
    assert b"033" in one.until(b"0000001")
    assert one.ended() == [0, False]


def test_ours_is_raw_meanwhile_and_as_it_was_afterwards(client):
    one = client("echo ready; read -r line")
    one.until(b"ready\r\n")
    assert not one.modes[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    one.type(b"\r")
    assert one.ended() == [0, False]
    assert one.modes[3] & termios.ICANON
    assert one.modes[3] & termios.ECHO


def test_a_key_that_is_a_signal_is_one_to_the_command_and_not_to_us(client):
    one = client('trap "echo interrupted; exit 5" INT; echo ready; while :; do sleep 0.02; done')
    one.until(b"ready\r\n")
    one.type(b"\x03")
    one.until(b"interrupted\r\n")
    assert one.ended() == [5, False]


def test_a_new_size_of_ours_is_one_of_its(client):
    one = client('trap "echo sized; stty size; exit" WINCH; echo ready; while :; do sleep 0.02; done')
    one.until(b"ready\r\n")
    one.resize(44, 122)
    one.until(b"sized\r\n44 122\r\n")
    assert one.ended() == [0, False]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_us_is_passed_on_and_ours_is_as_it_was(client, signum):
    one = client(f'trap "echo heard; exit 5" {signum.name[3:]}; echo ready; while :; do sleep 0.02; done')
    one.until(b"ready\r\n")
    one.process.send_signal(signum)
    one.until(b"heard\r\n")
    assert one.ended() == [5, False]
    assert one.modes[3] & termios.ICANON


def test_much_is_passed_on_both_ways(client):
    one = client(
        "stty -echo -icanon; echo ready; head -c 300000 | wc -c; head -c 300000 /dev/zero | tr '\\0' x; echo end"
    )
    one.until(b"ready\r\n")
    for _ in range(300):
        one.type(b"y" * 1000)
    one.until(b"300000\r\n")
    assert len(one.until(b"end\r\n")) == 300_000
    assert one.ended() == [0, False]


@pytest.mark.parametrize(("before", "code"), [("", 128 + signal.SIGHUP), ("trap '' HUP; ", 128 + signal.SIGKILL)])
def test_when_our_terminal_goes_the_command_is_hung_up_and_we_end_even_if_it_does_not(client, before, code):
    one = client(f"{before}echo ready; exec sleep 1000")
    one.until(b"ready\r\n")
    one.hang_up()
    assert one.ended()[0] == code


def test_what_it_leaves_at_its_terminal_is_told_and_not_waited_for(client):
    leave = """(trap '' HUP; : >"$DIRECTORY/is-left"; exec sleep 1000) & echo $! >"$DIRECTORY/pid" """
    one = client(f'{leave}; until test -e "$DIRECTORY/is-left"; do sleep 0.02; done; echo out')
    one.until(b"out\r\n")
    assert one.ended() == [0, True]


def test_a_program_can_be_handed_over_beside_the_terminal(client):
    one = client("cat <&3; test -t 0 && echo terminal", given="from a descriptor ")
    one.until(b"from a descriptor terminal\r\n")
    assert one.ended() == [0, False]


def test_a_command_that_cannot_be_run_is_an_error_and_ours_is_as_it_was(client):
    one = client("", argv=["/nowhere/program"])
    assert one.ended() == "FileNotFoundError"
    assert one.modes[3] & termios.ICANON


@pytest.mark.parametrize(
    ("value", "kind"),
    [("screen-256color", "screen-256color"), ("", "xterm"), ("a b", "xterm"), ("x" * 65, "xterm"), ("../x", "xterm")],
)
def test_a_kind_of_terminal_that_is_none_is_a_plain_one(monkeypatch, value, kind):
    monkeypatch.setenv("TERM", value)
    assert terminal.kind_of_terminal() == kind
    monkeypatch.delenv("TERM")
    assert terminal.kind_of_terminal() == "xterm"


def test_who_has_a_terminal_open_is_seen_also_when_its_other_side_is_closed():
    assert not procfs.has_terminal(os.getpid())
    ours, theirs = os.openpty()
    try:
        assert procfs.has_terminal(os.getpid())
        os.close(ours)
        assert procfs.has_terminal(os.getpid())
    finally:
        os.close(theirs)
    assert not procfs.has_terminal(os.getpid())
