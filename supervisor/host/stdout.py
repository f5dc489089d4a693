"""The streams of a command: each leads somewhere, and a stdout that cannot be written is a reason, told once."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, Final, TextIO

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

_STDOUT: Final = 1
_STDERR: Final = 2


def open_closed_streams() -> None:
    """Let stdin, stdout and stderr lead to /dev/null where we were started without them.

    Before anything else is opened: it would get their number, and what is meant for stderr would be written into it.
    A stdout that is not there cannot be written: whoever asks for an answer must not take none for one.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:  # the kernel gives the lowest number that is free
        if fd == _STDOUT:
            unwritable = os.open(os.devnull, os.O_RDONLY)
            os.dup2(unwritable, _STDOUT, inheritable=False)
            os.close(unwritable)
    os.close(fd)


def open_stdout() -> TextIO:
    """The process's stdout.

    Raises, when it is written to:
        BrokenPipeError: who reads it went away.
        ProblemError: OutputUnwritable.
    """
    encoding = "utf-8" if sys.stdout is None else sys.stdout.encoding  # None: it was closed before we started
    # What a locale has no bytes for is shown as escapes: better than no answer.
    return io.TextIOWrapper(
        io.BufferedWriter(_Stdout()), encoding=encoding, errors="backslashreplace", line_buffering=True
    )


class _Stdout(io.RawIOBase):
    """Descriptor 1. Once it has failed it takes everything and writes nothing, so that it fails but once."""

    def __init__(self) -> None:
        self._has_failed = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STDOUT

    def isatty(self) -> bool:
        return os.isatty(_STDOUT)

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        if self._has_failed:
            return view.nbytes
        try:
            return os.write(_STDOUT, view)
        except BrokenPipeError:
            self._has_failed = True
            raise
        except OSError as error:
            self._has_failed = True
            raise ProblemError(_unwritable(error)) from error


def _unwritable(error: OSError) -> Problem:
    words = "it would have to be waited for" if error.errno == errno.EAGAIN else error.strerror or str(error)
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.OUTPUT_UNWRITABLE,
        subject="stdout",
        message=f"stdout cannot be written: {words}",
    )
