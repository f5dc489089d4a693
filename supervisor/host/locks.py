"""Exclusive locks on files, held by a descriptor: the kernel lets them go with the process, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from supervisor.host.writing import open_for_lock

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.host.beneath import Beneath

_TRIES: Final = 8


class HostFileLock:
    """The real `FileLock`."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def close(self) -> None:
        """Release it; again does nothing."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def lock(beneath: Beneath, path: Path) -> HostFileLock:
    """Take an exclusive lock at once; the descriptor is closed on exec, so that no child holds the lock on.

    Raises:
        BlockingIOError: somebody else holds it.

    Source: flock(2) of man-pages 6.9.
    """
    for _ in range(_TRIES):
        fd = open_for_lock(beneath, path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(fd, path):
                return HostFileLock(fd)
        except BaseException:
            os.close(fd)
            raise
        # The file was removed or replaced before we had it: whoever comes next would lock another one.
        os.close(fd)
    raise BlockingIOError(errno.EAGAIN, "the file is being replaced all the time", str(path))


def _is_still_there(fd: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    return False
