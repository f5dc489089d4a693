"""The real file system as the fake runsc reaches it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Final

_DIRECTORY_MODE: Final = 0o711
_FILE_MODE: Final = 0o644
_CHUNK_BYTES: Final = 1 << 20


class OsFiles:
    """The `CommandFiles` of the machine that this runs on."""

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = b""
            while chunk := os.read(fd, _CHUNK_BYTES):
                content += chunk
            return content
        finally:
            os.close(fd)

    def replace(self, path: str, data: bytes) -> None:
        """Write a whole file, made or overwritten."""
        self._write(path, data, os.O_CREAT | os.O_TRUNC)

    def create(self, path: str, mode: int) -> None:
        """Make an empty file; FileExistsError when there is something."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))

    def append(self, path: str, data: bytes) -> None:
        """Append to a file, made when absent; what fits is written even when not all does."""
        self._write(path, data, os.O_CREAT | os.O_APPEND)

    def remove(self, path: str) -> None:
        """Remove a file; absent is fine."""
        try:
            os.remove(path)
        except FileNotFoundError:
            return

    def names(self, path: str) -> list[str]:
        """Names in a directory; none when it is absent."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents.

        Raises:
            OSError: ENOTDIR when something on the way is none.
        """
        try:
            os.makedirs(path, _DIRECTORY_MODE, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(20, "Not a directory", path) from None

    def directory_mode(self, path: str) -> int | None:
        """The permission bits of a directory; None when there is none."""
        mode = _mode(path)
        return stat.S_IMODE(mode) if mode is not None and stat.S_ISDIR(mode) else None

    def holds_file(self, path: str) -> bool:
        """Whether there is a regular file."""
        mode = _mode(path)
        return mode is not None and stat.S_ISREG(mode)

    def _write(self, path: str, data: bytes, flags: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, _FILE_MODE)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write everything."""
    while data:
        data = data[os.write(fd, data) :]


def write_output(fd: int, data: bytes) -> None:
    """Write to where output goes; errors are nobody's."""
    with suppress(OSError):
        write_all(fd, data)


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError:
        return None
