"""Parts of local files, as they are sent to a store and fetched from one: piece after piece, while somebody waits.

Everything here blocks, and is called in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from supervisor.host.beneath import DIRECTORY_MODE
from supervisor.host.writing import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from supervisor.host.beneath import Beneath

PIECE_BYTES: Final = 1 << 18

_Result = TypeVar("_Result")


class GivenUpError(Exception):
    """Raised in a thread whose caller has left."""


class Caller:
    """Who waits for a call, and may leave."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_left = False

    def leave(self) -> bool:
        """Wait no more; this does not block.

        Returns: whether nothing is done for it any more; else `settle` waits until that is so.
        """
        self._has_left = True
        is_idle = self._lock.acquire(blocking=False)
        if is_idle:
            self._lock.release()
        return is_idle

    def settle(self) -> None:
        """Wait for what is being done for it at this moment, after which nothing is. A disk may take its time."""
        with self._lock:
            pass

    def require(self) -> None:
        """Go on only while it waits.

        Raises:
            GivenUpError: it has left.
        """
        if self._has_left:
            raise GivenUpError

    def do(self, act: Callable[..., _Result], *args: object) -> _Result:
        """Do a small thing for it that must not happen once it has left.

        Raises:
            GivenUpError: it has left.
        """
        with self._lock:
            self.require()
            return act(*args)


@attrs.frozen(kw_only=True)
class LocalPart:
    """A part of a local file."""

    path: Path
    offset_bytes: int
    size_bytes: int


@contextmanager
def open_to_read(path: Path) -> Iterator[int]:
    """Open a regular file, waiting for nothing."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _require_regular(fd, path)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_to_write(beneath: Beneath, path: Path) -> Iterator[int]:
    """Open a regular file below our directories, made when absent; following no symlink."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with beneath.parent(path) as (directory, name):
        fd = os.open(name, flags, FILE_MODE, dir_fd=directory)
    try:
        _require_regular(fd, path)
        yield fd
    finally:
        os.close(fd)


def _require_regular(fd: int, path: Path) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def pieces_of(caller: Caller, fd: int, part: LocalPart) -> Iterator[bytes]:
    """A part of an open file, in pieces.

    Raises:
        OSError: ENODATA when the file is shorter.
        GivenUpError: nobody waits for more.
    """
    at_bytes, end_bytes = part.offset_bytes, part.offset_bytes + part.size_bytes
    while at_bytes < end_bytes:
        caller.require()
        piece = os.pread(fd, min(PIECE_BYTES, end_bytes - at_bytes), at_bytes)
        if not piece:
            raise OSError(errno.ENODATA, f"shorter than {end_bytes} bytes", str(part.path))
        at_bytes += len(piece)
        yield piece


def write_all(fd: int, data: bytes, offset_bytes: int) -> None:
    """Write at an offset, all of it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset_bytes)
        offset_bytes += written
        view = view[written:]


def make_directories(path: str) -> None:
    """Make a directory 0700 with its parents, durably; what exists is left as it is."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_directories(above)
    with suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_MODE)
    sync(above)


def sync(path: str) -> None:
    """Fsync a file or a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
