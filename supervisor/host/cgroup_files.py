"""The files of a cgroup: read whole, written in one call, never made.

Source: admin-guide/cgroup-v2 of the kernel's documentation; seen on Linux 6.18.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CHUNK_BYTES: Final = 1 << 16
_LIMIT_BYTES: Final = 4 << 20
"""A cgroup of a hundred thousand processes lists them in less."""


def read(path: Path) -> str:
    """The content of a file.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while len(content) < _LIMIT_BYTES and (chunk := os.read(fd, _CHUNK_BYTES)):
            content += chunk
    finally:
        os.close(fd)
    return content.decode("ascii")


def write(path: Path, text: str) -> None:
    """Write a file; the kernel takes the whole of it or nothing.

    Raises:
        OSError: the kernel does not take it.
    """
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


def words(path: Path) -> tuple[str, ...]:
    """The words of a file, such as cgroup.controllers."""
    return tuple(read(path).split())


def processes(cgroup: Path) -> tuple[int, ...]:
    """The pids in a cgroup; 0 is a process outside of our PID namespace. A zombie is in none any more."""
    return tuple(int(word) for word in words(cgroup / "cgroup.procs"))


def is_populated(cgroup: Path) -> bool:
    """Whether anything lives in a cgroup or below it; False when it is gone."""
    try:
        return says_populated(read(cgroup / "cgroup.events").encode())
    except FileNotFoundError:
        return False


def says_populated(events: bytes) -> bool:
    """What the text of cgroup.events says."""
    return b"populated 0" not in events.splitlines()


def keyed(path: Path) -> Mapping[str, int]:
    """A file of lines `name number`, such as memory.events.

    Raises:
        OSError: it cannot be read, or holds something else.
    """
    pairs = (line.split() for line in read(path).splitlines())
    try:
        return {name: int(number) for name, number in pairs}
    except ValueError as error:
        raise OSError(errno.EINVAL, "it holds no names and numbers", str(path)) from error


def keyed_where_there(path: Path) -> Mapping[str, int]:
    """As `keyed`; nothing when there is no such file: its controller is off, or the kernel too old."""
    with suppress(FileNotFoundError):
        return keyed(path)
    return {}


def number_where_there(path: Path) -> int | None:
    """A file of one number, such as memory.current; None when there is no such file.

    Raises:
        OSError: it cannot be read, or holds something else.
    """
    try:
        return int(read(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OSError(errno.EINVAL, "it holds no number", str(path)) from error
