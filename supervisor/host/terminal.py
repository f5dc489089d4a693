"""A command at a terminal of its own, and ours made its window: for `exec -t`.

The command's terminal is a new one, which it controls, so that whatever looks after terminals does so where the command
is: echo, line editing, the keys for signals, job control, the size of the window. Ours only passes keys and output on,
and is as it was when the command has ended, however that was.

Measured on runsc 20240729: an exec whose stdin is a terminal gives the command one, with job control; runsc, which
controls it, passes on what its keys and its size bring (SIGINT, SIGTSTP, SIGWINCH) to the foreground inside.

Source: pty(7), termios(3), tty_ioctl(4) of man-pages 6.9.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import termios
import time
import tty
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from actors.runsc.argv import TERM
from supervisor.host import spawning
from supervisor.host.foreground import LAST_S, PASSED_ON, Passing, heard_signals, run_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from supervisor.host.foreground import Ended

PROGRAM_NAME: Final = "greenroom-confine"
_STDIN, _STDOUT = 0, 1
_PLAIN_KIND: Final = "xterm"
_SIZE_BYTES: Final = 8  # of struct winsize


def has_terminal() -> bool:
    """Whether our stdin is a terminal."""
    return os.isatty(_STDIN)


def kind_of_terminal() -> str:
    """What kind ours is, as TERM says; a plain one where that says nothing of use."""
    kind = os.environ.get("TERM", "")
    return kind if TERM.fullmatch(kind) else _PLAIN_KIND


def run_at_terminal(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    program: tuple[bytes, int] | None,
    pass_on: Callable[[int], None],
) -> Ended:
    """Run a command at a terminal of its own, to its end.

    Args:
        argv: the command.
        env: its whole environment.
        program: what can be read from a descriptor that it gets beside its stdio, and the number of that.
        pass_on: sends a signal of ours to what runs; called between other things.

    Raises:
        OSError: the terminal cannot be made, or the command cannot be run.
    """
    with ExitStack() as opened, heard_signals((*PASSED_ON, signal.SIGWINCH)) as signals:
        ours, theirs = os.openpty()
        opened.callback(os.close, ours)
        opened.callback(os.close, theirs)
        keys = os.dup(ours)  # the end of our input must not be the end of its output
        opened.callback(os.close, keys)
        os.set_blocking(ours, False)
        _copy_size(ours)
        given = None if program is None else (opened.enter_context(_file_of(program[0])), program[1])

        def heard(signum: int) -> None:
            if signum == signal.SIGWINCH:
                _copy_size(ours)
            else:
                pass_on(signum)

        with _raw():
            pid = spawning.posix_spawn_at_terminal(argv, env, terminal=os.ttyname(theirs), program=given)
            return run_between(pid, [theirs], _Keys({ours: _STDOUT}, keys, signals, heard))


class _Keys(Passing):
    """Passes on until our terminal goes: then the command's goes too, which sends it SIGHUP, and we wait no longer."""

    _until_s = math.inf

    @property
    def patience_s(self) -> float | None:
        """What is left of that, once ours has gone."""
        return None if self._until_s == math.inf else max(0.0, self._until_s - time.monotonic())

    def end_of_input(self) -> None:
        """Of a terminal in this mode no key is the end."""
        super().end_of_input()
        self.drop_outputs()
        self._until_s = time.monotonic() + LAST_S


@contextmanager
def _raw() -> Iterator[None]:
    """Every key is passed on as it is, while the body runs; then all is as it was."""
    before = termios.tcgetattr(_STDIN)
    try:
        tty.setraw(_STDIN, termios.TCSANOW)
        yield
    finally:
        with suppress(termios.error):  # it is gone
            # Now, whatever it has not shown yet: one that shows nothing more must not hold us.
            termios.tcsetattr(_STDIN, termios.TCSANOW, before)


def _copy_size(terminal: int) -> None:
    """Make the command's window as large as ours; whoever controls it is told by the kernel."""
    with suppress(OSError):  # ours is gone
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, bytes(_SIZE_BYTES)))


@contextmanager
def _file_of(data: bytes) -> Iterator[int]:
    """A descriptor for reading alone, as runsc wants it of a program, and above the numbers of stdio."""
    writer = os.memfd_create(PROGRAM_NAME, os.MFD_CLOEXEC)
    try:
        os.fchmod(writer, 0o755)
        os.write(writer, data)
        reader = os.open(f"/proc/self/fd/{writer}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)
