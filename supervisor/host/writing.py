"""Changing single files below our directories. Everything here blocks, and is called in a thread."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from supervisor.host.beneath import refuse_symlink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from supervisor.host.beneath import Beneath

FILE_MODE: Final = 0o600
# O_NONBLOCK only matters for what is no regular file: a fifo without a reader then is an error instead of a wait.
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# A name may have 255 bytes; the rest of a temporary one takes 22.
_NAME_LIMIT_BYTES: Final = 230


def replace(beneath: Beneath, path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Replace a file so that a reader, and whoever comes after a crash, finds all of the old content or of the new.

    Source: rename(2), fsync(2): the entry of a new file is only durable when its directory has been synced.
    """
    with beneath.parent(path) as (directory, name):
        with _renamed_to(name, directory, data, mode) as fd:
            os.fsync(fd)
        os.fsync(directory)


def replace_for_boot(beneath: Beneath, path: Path, data: bytes) -> None:
    """Replace a file so that a reader finds all of the old content or of the new, unless the power was cut."""
    with beneath.parent(path) as (directory, name), _renamed_to(name, directory, data, FILE_MODE):
        pass


def make_file(name: str, directory: int, data: bytes, mode: int) -> None:
    """Make a file with this content where there is none.

    Raises:
        OSError: EEXIST; ENOSPC, after which a part of it is there.
    """
    fd = _open_new(name, directory)
    try:
        _fill(fd, data, mode)
    finally:
        os.close(fd)


def append(beneath: Beneath, path: Path, data: bytes, *, durably: bool) -> None:
    """Append in one write, all or nothing.

    The entry of a file that was made is durable in any case: who appends durably later finds the file and has no reason
    to sync its directory.

    Raises:
        OSError: ENOSPC when not all of it fitted; then none of it is left in the file.
    """
    with beneath.parent(path) as (directory, name):
        fd, is_new = _open_append(name, directory)
        try:
            _require_regular(fd)
            written = os.write(fd, data)
            if written < len(data):
                os.ftruncate(fd, os.fstat(fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            if durably:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        if is_new:
            os.fsync(directory)


def truncate(beneath: Beneath, path: Path, size_bytes: int) -> None:
    """Cut a file to a size; one that is shorter already stays as it is."""
    with beneath.parent(path) as (directory, name):
        fd = os.open(name, _WRITE, dir_fd=directory)
        try:
            _require_regular(fd)
            if os.fstat(fd).st_size > size_bytes:
                os.ftruncate(fd, size_bytes)
        finally:
            os.close(fd)


def rename(beneath: Beneath, source: Path, target: Path) -> None:
    """Rename within one file system and sync the target's directory."""
    with beneath.parent(source) as (from_directory, old), beneath.parent(target) as (to_directory, new):
        refuse_symlink(new, to_directory)
        os.rename(old, new, src_dir_fd=from_directory, dst_dir_fd=to_directory)
        os.fsync(to_directory)


def remove_file(beneath: Beneath, path: Path) -> None:
    """Remove a file, or a symlink itself; absent is fine."""
    with suppress(FileNotFoundError), beneath.parent(path) as (directory, name):
        os.unlink(name, dir_fd=directory)


def open_for_lock(beneath: Beneath, path: Path) -> int:
    """Open a file to lock it, making it when absent."""
    with beneath.parent(path) as (directory, name):
        fd = os.open(name, _WRITE | os.O_CREAT, FILE_MODE, dir_fd=directory)
    try:
        _require_regular(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def temporary_name(name: str) -> str:
    """A name of its own for what will be renamed to this one."""
    short = os.fsdecode(os.fsencode(name)[:_NAME_LIMIT_BYTES])
    return f".{short}.{secrets.token_hex(8)}.tmp"


@contextmanager
def _renamed_to(name: str, directory: int, data: bytes, mode: int) -> Iterator[int]:
    """A temporary file with this content, open, that in the end takes the name.

    The temporary name begins with a dot, which watchers of our directories leave alone, and is removed on any failure.
    """
    refuse_symlink(name, directory)
    temporary = temporary_name(name)
    fd = _open_new(temporary, directory)
    try:
        try:
            _fill(fd, data, mode)
            yield fd
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _open_new(name: str, directory: int) -> int:
    return os.open(name, _WRITE | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=directory)


def _fill(fd: int, data: bytes, mode: int) -> None:
    os.fchmod(fd, mode)  # whatever the umask
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _open_append(name: str, directory: int) -> tuple[int, bool]:
    """Open to append, and whether the file was made by that."""
    flags = _WRITE | os.O_APPEND
    while True:
        with suppress(FileNotFoundError):
            return os.open(name, flags, dir_fd=directory), False
        with suppress(FileExistsError):
            return os.open(name, flags | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=directory), True


def _require_regular(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
