"""The operating system behind the library's ports, for programs outside Greenroom.

The worker never imports this: its own port for files fits `scan_async`; the command `greenroom cdi` does. It is the one
module of the library that touches a machine, so that everything else can be run on any.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from typing import TYPE_CHECKING, Final

from .ports import HostNode
from .scanning import is_spec_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_CHUNK_BYTES: Final = 1 << 20
_FILE_MODE: Final = 0o644


class HostFiles:
    """Spec files of this machine; a `WritableSpecFiles`."""

    def list_directory(self, path: str) -> tuple[str, ...]:
        """See `SpecFiles`."""
        return tuple(sorted(os.listdir(path)))

    def read(self, path: str, *, limit_bytes: int) -> bytes | None:
        """See `SpecFiles`. A fifo or a device is refused at once: nobody waits for its other end."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                return None
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", path)
            return _read_all(descriptor, path, limit_bytes)
        finally:
            os.close(descriptor)

    def stamp(self, directory: str) -> Hashable:
        """See `StampedSpecFiles`. Symlinks are followed: the specs of a ConfigMap change behind one."""
        try:
            names = [name for name in os.listdir(directory) if is_spec_name(name)]
        except OSError as error:
            return error.errno
        return frozenset((name, _stamp(os.path.join(directory, name))) for name in names)

    def replace(self, path: str, data: bytes) -> None:
        """See `WritableSpecFiles`."""
        _publish(path, data, os.replace)

    def create(self, path: str, data: bytes) -> None:
        """See `WritableSpecFiles`."""
        _publish(path, data, _link)

    def remove(self, path: str) -> None:
        """See `WritableSpecFiles`."""
        os.remove(path)


def lstat(path: str) -> HostNode | None:
    """See `Lstat`."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISFIFO(status.st_mode):
        return HostNode(type="p", mode=mode)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
        return HostNode(type=kind, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev), mode=mode)
    return HostNode(type="")


def _stamp(path: str) -> Hashable:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    # The time of the last change of status cannot be set back: it tells of a write that restores the other one.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


def _read_all(descriptor: int, path: str, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes", path)
    return b"".join(chunks)


def _publish(path: str, data: bytes, publish: Callable[[str, str], None]) -> None:
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    temporary = _written_beside(directory, data)
    try:
        publish(temporary, path)
    finally:
        _remove_if_there(temporary)


def _written_beside(directory: str, data: bytes) -> str:
    """A new file in the directory, under a name that no reader of specs looks at."""
    for attempt in itertools.count():
        path = os.path.join(directory, f"spec.{os.getpid()}.{attempt}.tmp")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        except FileExistsError:
            continue
        try:
            _write_all(descriptor, data)
        except BaseException:
            os.remove(path)
            raise
        finally:
            os.close(descriptor)
        return path
    message = "counting does not end"
    raise AssertionError(message)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _link(source: str, target: str) -> None:
    # Unlike a rename, a link never replaces what is there.
    os.link(source, target)


def _remove_if_there(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        # It was renamed, which is how it should end.
        return
