"""The simulated disk as programs reach it: by whole paths, in the caller's name, at once."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sim.world.errors import kernel_error
from sim.world.nodes import Directory, Regular

if TYPE_CHECKING:
    from sim.world.disk import SimDisk
    from sim.world.nodes import Node

_FILE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o711
_PERMISSIONS: Final = 0o777


class DiskOutput:
    """A file of a simulated disk, held open O_APPEND: writes go to it whatever becomes of its name.

    Args:
        disk: where it is.
        node: the file.
    """

    def __init__(self, disk: SimDisk, node: Regular) -> None:
        self._disk = disk
        self._node = node

    def write(self, data: bytes) -> None:
        """Append; a disk that is full or broken takes what it can, as no application here looks at errors."""
        try:
            self._disk.append(self._node, data)
        except OSError:
            return


class DiskFiles:
    """The `CommandFiles` of a simulated disk. Nothing is synced: what programs write may be lost with the power.

    Args:
        disk: the simulated disk.
    """

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def open_append(self, path: Path, *, mode: int) -> DiskOutput:
        """Open a file O_APPEND | O_CREAT | O_NOFOLLOW.

        Raises:
            OSError: as open(2) says; EINVAL when it is not a regular file.
        """
        directory = self._disk.find_directory(path.parent)
        if path.name in directory.entries:
            return DiskOutput(self._disk, self._disk.open_to_write(directory, path.name))
        return DiskOutput(self._disk, self._disk.create(directory, path.name, mode))

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        directory = self._disk.find_plainly(_names(path)[:-1])
        node = None if directory is None else directory.entries.get(path.rpartition("/")[2])
        return self._disk.read(node if node.__class__ is Regular else self._disk.find_regular(Path(path)))

    def replace(self, path: str, data: bytes) -> None:
        """Write a whole file, made or overwritten."""
        node = self._open(*self._holder(path))
        self._disk.cut(node, 0)
        self._append(node, data)

    def create(self, path: str, mode: int) -> None:
        """Make an empty file; FileExistsError when there is something."""
        self._disk.create(*self._holder(path), mode)

    def append(self, path: str, data: bytes) -> None:
        """Append to a file, made when absent; what fits is written even when not all does."""
        self._append(self._open(*self._holder(path)), data)

    def remove(self, path: str) -> None:
        """Remove a file; absent is fine."""
        try:
            self._disk.remove(*self._holder(path))
        except FileNotFoundError:
            return

    def names(self, path: str) -> list[str]:
        """Names in a directory; none when it is absent."""
        try:
            return self._disk.names(self._find_directory(path))
        except FileNotFoundError:
            return []

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents.

        Raises:
            OSError: ENOTDIR when something on the way is none.
        """
        if self._disk.find_plainly(_names(path)) is None:
            self._directory(Path(path))

    def directory_mode(self, path: str) -> int | None:
        """The permission bits of a directory; None when there is none."""
        node = self._find(path)
        return node.mode & _PERMISSIONS if isinstance(node, Directory) else None

    def holds_file(self, path: str) -> bool:
        """Whether there is a regular file."""
        return isinstance(self._find(path), Regular)

    def _find(self, path: str) -> Node | None:
        *way, name = _names(path)
        directory = self._disk.find_plainly(tuple(way))
        if directory is not None:
            node = directory.entries.get(name)
            if node is None or node.__class__ is Regular:
                return node
        try:
            return self._disk.find(Path(path))
        except OSError:
            return None

    def _find_directory(self, path: str) -> Directory:
        return self._disk.find_plainly(_names(path)) or self._disk.find_directory(Path(path))

    def _holder(self, path: str) -> tuple[Directory, str]:
        """The directory that holds a path, and the last name."""
        parent, _, name = path.rpartition("/")
        return self._find_directory(parent or "/"), name

    def _directory(self, path: Path) -> Directory:
        try:
            return self._disk.find_directory(path)
        except FileNotFoundError:
            above = self._directory(path.parent)
        return self._disk.make_directory(above, path.name, _DIRECTORY_MODE)

    def _open(self, directory: Directory, name: str) -> Regular:
        if name in directory.entries:
            return self._disk.open_to_write(directory, name)
        return self._disk.create(directory, name, _FILE_MODE)

    def _append(self, node: Regular, data: bytes) -> None:
        if data and self._disk.append(node, data) < len(data):
            raise kernel_error(errno.ENOSPC)


def _names(path: str) -> tuple[str, ...]:
    """The names on the way to an absolute path; what is no plain one leads nowhere by them."""
    return tuple(path.split("/")[1:])
