"""Taking the beginning out of a file that somebody else appends to. Everything here blocks, and is called in a thread.

ext4 and XFS can take whole blocks out of a file at its beginning, in one step: then nothing is lost, whoever writes
meanwhile. Elsewhere the file is cut to nothing once all of it was copied, and what is written in between is lost.

Source: fallocate(2) FALLOC_FL_COLLAPSE_RANGE of man-pages 6.9; measured on ext4 and tmpfs of Linux 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from supervisor.host.writing import FILE_MODE, temporary_name
from supervisor.log_files import Cut

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.host.beneath import Beneath

_COLLAPSE_RANGE: Final = 0x08
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ETXTBSY})
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_libc: Final = ctypes.CDLL(None, use_errno=True)
_fallocate: Final = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def cut(beneath: Beneath, path: Path, into: Path, keep_bytes: int) -> Cut:
    """Take whole blocks out of the beginning of a file, nearly all that it holds, and keep the newest of them.

    Raises:
        OSError: it could not be cut; nothing of it is gone, but what was kept of it before may be.
    """
    with beneath.parent(path) as (directory, name), beneath.parent(into) as (beside, kept_name):
        fd = os.open(name, os.O_RDWR | _OPEN, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            block_bytes = os.fstatvfs(fd).f_bsize
            # At least one byte stays: a file cannot be taken out of itself to its end.
            head_bytes = max(os.fstat(fd).st_size - 1, 0) // block_bytes * block_bytes
            if head_bytes == 0:
                return Cut(cut_bytes=0, kept_bytes=0)
            kept_bytes = _keep(fd, head_bytes, keep_bytes, beside, kept_name)
            try:
                return _take_out(fd, head_bytes, kept_bytes, beside, kept_name)
            except OSError:
                # It stands in the file as well, and would be told twice. What was kept before is gone already.
                with suppress(OSError):
                    os.unlink(kept_name, dir_fd=beside)
                raise
        finally:
            os.close(fd)


def _take_out(fd: int, head_bytes: int, kept_bytes: int, beside: int, kept_name: str) -> Cut:
    """Take the head out of the file, once the end of it is kept."""
    while _fallocate(fd, _COLLAPSE_RANGE, 0, head_bytes) != 0:
        code = ctypes.get_errno()
        if code in _UNSUPPORTED:
            return _cut_to_nothing(fd, head_bytes, kept_bytes, beside, kept_name)
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return Cut(cut_bytes=head_bytes, kept_bytes=kept_bytes)


def _keep(fd: int, head_bytes: int, keep_bytes: int, beside: int, name: str) -> int:
    """Replace the other file by the end of the head; returns how much it holds then."""
    start = max(0, head_bytes - keep_bytes)
    temporary = temporary_name(name)
    try:
        target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, FILE_MODE, dir_fd=beside)
        try:
            copied = _copy(fd, start, head_bytes, target)
        finally:
            os.close(target)
        os.rename(temporary, name, src_dir_fd=beside, dst_dir_fd=beside)
    except OSError as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=beside)
        if error.errno not in _NO_ROOM:
            raise
        # A disk that is full gets room by this, and not when somebody has made some.
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=beside)
        return 0
    return copied


def _cut_to_nothing(fd: int, head_bytes: int, kept_bytes: int, beside: int, name: str) -> Cut:
    """Copy the rest behind what is kept, and cut the file; what is written between the two is lost."""
    end = os.fstat(fd).st_size
    rest_bytes = 0
    if kept_bytes:
        target = os.open(name, os.O_WRONLY | _OPEN, dir_fd=beside)
        try:
            os.lseek(target, 0, os.SEEK_END)  # sendfile refuses a file that is open to append
            with suppress(OSError):  # no room for it either: it counts as dropped
                rest_bytes = _copy(fd, head_bytes, end, target)
        finally:
            os.close(target)
    os.ftruncate(fd, 0)
    if rest_bytes == end - head_bytes:
        return Cut(cut_bytes=end, kept_bytes=kept_bytes + rest_bytes, may_have_lost=True)
    # What is kept must be the end of what was cut: a file with a gap would be told as one without.
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=beside)
    return Cut(cut_bytes=end, kept_bytes=0, may_have_lost=True)


def _copy(fd: int, start: int, end: int, target: int) -> int:
    """Copy a part of a file within the kernel; returns how much it was."""
    at = start
    while at < end and (count := os.sendfile(target, fd, at, end - at)):
        at += count
    return at - start
