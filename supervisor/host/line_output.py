"""Our stdout as the place of the containers' lines: who reads it may be slow, and never makes the event loop wait.

The descriptor itself stays blocking: it may be shared with whoever started us. A pipe or terminal is opened anew by
its name below /proc, which gives us an open file of our own to make non-blocking; a socket is sent to without waiting;
a regular file never waits. It is not opened anew: where there is no O_APPEND the new open file would write from an
offset of its own, over or under what stderr writes to the same file, and a container could make such lines its own.

Source: proc(5) of man-pages 6.9, /proc/PID/fd: opening a pipe's link opens that pipe again; a socket's fails (ENXIO).
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio import lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WAITABLE: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})


class HostLineOutput:
    """The real `LineOutput`. Made by `open_line_output`."""

    def __init__(self, fd: int, write: Callable[[memoryview], int]) -> None:
        self._fd, self._write = fd, write

    async def write(self, lines: bytes) -> None:
        """Write whole lines, however long that takes.

        Raises:
            OSError: nobody reads them any more (EPIPE), or they cannot be written.
        """
        rest = memoryview(lines)
        while rest:
            await lowlevel.checkpoint()
            try:
                rest = rest[self._write(rest) :]
            except OSError as error:
                if error.errno not in _WAITABLE:
                    raise
                await anyio.wait_writable(self._fd)


@contextmanager
def open_line_output(fd: int) -> Iterator[HostLineOutput]:
    """Where a descriptor of ours leads to.

    Raises:
        OSError: it is closed.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        with socket.socket(fileno=os.dup(fd)) as connection:
            yield HostLineOutput(
                connection.fileno(), lambda data: connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            )
        return
    own = os.dup(fd) if stat.S_ISREG(mode) else _opened_anew(fd)
    try:
        yield HostLineOutput(own, lambda data: os.write(own, data))
    finally:
        os.close(own)


def _opened_anew(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
