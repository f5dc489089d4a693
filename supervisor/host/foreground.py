"""A command in the foreground of a client: its streams are ours, our signals are its, its end is ours.

Its streams are fifos with names of their own, between which and ours everything is passed on: so that whoever looks at
the sandbox sees that one of them is still open, and the end of its output is seen as such. It runs in a session of its
own: a terminal's ^C comes to us, and we pass it on to the command inside, where the terminal cannot.

Everything here blocks: it is for a process that does nothing else.

Source: fifo(7), poll(2), signal(7) of man-pages 6.9.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import Output
from supervisor.host import spawning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LAST_S: Final = 1.0
"""How long the rest of its output is waited for when it has ended, all together: what it left running may hold it open
for ever, and write into it for ever too."""
_PIECE_BYTES: Final = 1 << 16
_STDIN, _STDOUT, _STDERR = 0, 1, 2


@attrs.frozen(kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code, 128 and its number for a signal.
        has_left_something: whether something still has its output open.
        unwritten: why not all of its stdout could be written to ours, but for that nobody reads ours.
    """

    code: int
    has_left_something: bool
    unwritten: OSError | None


def run_in_foreground(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: Path | None,
    streams: Path,
    pass_on: Callable[[int], None],
) -> Ended:
    """Run a command to its end.

    Args:
        argv: the command.
        env: its whole environment.
        stdin: the file that is its stdin; None passes on ours.
        streams: where its streams are made, a path to which their names are added.
        pass_on: sends a signal of ours to what runs; called between other things.

    Raises:
        OSError: the streams cannot be made, or the command cannot be run.
    """
    with ExitStack() as opened, heard_signals(PASSED_ON) as signals:
        theirs = list[int]()
        out_reader, out_writer = _fifo(streams.with_suffix(".stdout"), opened)
        err_reader, err_writer = _fifo(streams.with_suffix(".stderr"), opened)
        in_writer: int | None = None
        if stdin is None:
            in_reader, in_writer = _fifo(streams.with_suffix(".stdin"), opened)
            os.set_blocking(in_writer, False)
        else:
            in_reader = opened.enter_context(spawning.open_input(stdin))
        os.set_blocking(in_reader, True)
        theirs += [in_reader, out_writer, err_writer]
        pid = spawning.posix_spawn(argv, env, stdin_fd=in_reader, stdout_fd=out_writer, stderr_fd=err_writer)
        return run_between(
            pid, theirs, Passing({out_reader: _STDOUT, err_reader: _STDERR}, in_writer, signals, pass_on)
        )


def run_between(pid: int, theirs: Iterable[int], passing: Passing) -> Ended:
    """Pass on between us and a command that was just started, to its end; `theirs` are its ends of its streams."""
    try:
        # Ours would keep its output from ever coming to an end.
        for fd in theirs:
            _redirect_to_null(fd)
        passing.until_end(pid)
    except BaseException:
        os.kill(pid, signal.SIGKILL)  # it was not waited for: the pid is its own
        os.waitpid(pid, 0)
        raise
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    passing.pass_rest()
    return Ended(
        code=code if code >= 0 else 128 - code, has_left_something=passing.is_open, unwritten=passing.unwritten
    )


def spawn_quietly(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a short command whose end nobody waits for; that it cannot be started is nobody's trouble."""
    with suppress(OSError), spawning.open_output(Output.DISCARD) as null:
        spawning.posix_spawn(argv, env, stdout_fd=null, stderr_fd=null)


class Passing:
    """Passes on between a command's streams and ours.

    Args:
        outputs: descriptors of what it writes, each with ours that gets it.
        in_writer: gets what we read from our stdin; None: nothing is read there.
        signals: numbers of signals of ours can be read there.
        pass_on: sends one to what runs.
    """

    def __init__(
        self, outputs: dict[int, int], in_writer: int | None, signals: int, pass_on: Callable[[int], None]
    ) -> None:
        self._outputs, self._in_writer = outputs, in_writer
        self._signals, self._pass_on = signals, pass_on
        self._pending = b""
        self._is_over = in_writer is None
        self.unwritten: OSError | None = None

    @property
    def patience_s(self) -> float | None:
        """How much longer the command may run; None: for as long as it likes."""
        return None

    @property
    def is_open(self) -> bool:
        """Whether somebody can still write to one of its outputs."""
        return bool(self._outputs)

    def until_end(self, pid: int) -> None:
        """Pass on until the command has ended; it is not waited for here."""
        pidfd = os.pidfd_open(pid)
        try:
            while not self._pass_once(pidfd, timeout_s=self.patience_s):
                if self.patience_s == 0:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)

    def pass_rest(self) -> None:
        """Pass on what the command wrote before its end, and for a while what comes after it."""
        self._drop_input()
        until_s, left_s = time.monotonic() + LAST_S, LAST_S
        # A fifo holds no more than one piece: already the first look takes all that the command itself wrote.
        while self._outputs and left_s > 0:
            self._pass_once(None, timeout_s=left_s)
            left_s = until_s - time.monotonic()

    def _pass_once(self, pidfd: int | None, *, timeout_s: float | None) -> bool:
        """Wait for something and pass it on; returns whether the command has ended."""
        poll = select.poll()
        for fd in (*self._outputs, self._signals, *(() if pidfd is None else (pidfd,))):
            poll.register(fd, select.POLLIN)
        if self._in_writer is not None:
            if self._pending:
                poll.register(self._in_writer, select.POLLOUT)
            elif not self._is_over:
                poll.register(_STDIN, select.POLLIN)
        found = dict(poll.poll(None if timeout_s is None else timeout_s * 1000))
        for fd in found:
            if fd in self._outputs:
                self._pass_output(fd)
        if _STDIN in found:
            self._take_input()
        if self._in_writer in found:
            self._give_input()
        if self._signals in found:
            for signum in os.read(self._signals, _PIECE_BYTES):
                self._pass_on(signum)
        return pidfd in found

    def _pass_output(self, fd: int) -> None:
        try:
            data = os.read(fd, _PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # of a terminal: nobody has it open any more
        if not data:
            del self._outputs[fd]
            return
        ours = self._outputs[fd]
        try:
            _write(ours, data)
        except OSError as error:  # nobody reads ours, or it takes no more: then nobody reads its either
            if ours == _STDOUT and not isinstance(error, BrokenPipeError):
                self.unwritten = error
            self._drop_output(fd)

    def drop_outputs(self) -> None:
        """Whatever it still writes, nobody reads."""
        for fd in tuple(self._outputs):
            self._drop_output(fd)

    def _drop_output(self, fd: int) -> None:
        del self._outputs[fd]
        _redirect_to_null(fd)

    def _take_input(self) -> None:
        try:
            self._pending = os.read(_STDIN, _PIECE_BYTES)
        except OSError:
            self._pending = b""
        if not self._pending:
            self.end_of_input()

    def end_of_input(self) -> None:
        """Nothing more comes from us."""
        self._drop_input()

    def _give_input(self) -> None:
        if self._in_writer is None:
            return
        try:
            self._pending = self._pending[os.write(self._in_writer, self._pending) :]
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in {errno.EPIPE, errno.EIO}:  # nobody reads it, in a pipe or at a terminal
                raise
            self._drop_input()

    def _drop_input(self) -> None:
        """It gets no more: the end of ours is the end of its."""
        if self._in_writer is not None:
            _redirect_to_null(self._in_writer)
        self._in_writer, self._pending, self._is_over = None, b"", True


def _fifo(path: Path, opened: ExitStack) -> tuple[int, int]:
    """A fifo of that name, open at both ends, which is removed at once: the name stays with who has it open."""
    os.mkfifo(path, 0o600)
    try:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        opened.callback(os.close, reader)
        writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        opened.callback(os.close, writer)
    finally:
        os.unlink(path)
    return reader, writer


def _write(fd: int, data: bytes) -> None:
    """Write all of it, also to what somebody else made non-blocking."""
    room = select.poll()
    room.register(fd, select.POLLOUT)
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            room.poll()


def _redirect_to_null(fd: int) -> None:
    """Let go of what a descriptor leads to, and keep its number until all are closed."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(null, fd, inheritable=False)
    finally:
        os.close(null)


@contextmanager
def heard_signals(signums: Iterable[int]) -> Iterator[int]:
    """A descriptor from which the numbers of signals can be read that would else end us."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {signum: signal.signal(signum, _heard) for signum in signums}
    try:
        yield reader
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(reader)
        os.close(writer)


def _heard(_signum: int, _frame: object) -> None:
    """The wakeup descriptor has its number."""
