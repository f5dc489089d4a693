"""Whole trees below our directories, of any depth, by directory descriptors. Everything here blocks.

One descriptor is open at a time: the way down is by name, the way up by `..`, where the directory that is found must be
the one that was left. So neither the depth of a tree nor a directory that is moved meanwhile leads anywhere else.
shutil.rmtree needs a descriptor and a stack frame for each level, and goes into other file systems.

Source: openat(2), unlinkat(2), and mnt_id in proc_pid_fdinfo(5) (Linux 3.15) of man-pages 6.9.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from supervisor.host.beneath import open_directory
from supervisor.tree_walk import REPEATS_MAX, Level, Remains, Walk

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.host.beneath import Beneath

_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PARENT: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_tree(beneath: Beneath, path: Path) -> None:
    """Remove a tree, following no symlink and going into no other mount; absent is fine.

    What can be removed is removed, also when something else cannot. What somebody else removes meanwhile is fine.

    Raises:
        OSError: the first thing that could not be removed, and why; EBUSY for a mount point, ELOOP and ENOTDIR when
            the top is no directory.
    """
    with suppress(FileNotFoundError), beneath.parent(path) as (directory, name):
        _Removal(path, directory).remove(name)


def sync_tree(beneath: Beneath, path: Path) -> None:
    """Sync every regular file and directory of a tree: of each directory first what is in it, so the top is the last.

    Raises:
        OSError: a file could not be synced, so may be lost; ENOENT when there is no tree.

    Source: fsync(2).
    """
    with beneath.parent(path) as (directory, name):
        _Sync(path, directory).walk(name)


@attrs.define(kw_only=True)
class DirectoryLevel(Level):
    """A level whose pending names are those of directories; the others are met when it is entered."""

    device: int
    inode: int


class DirectoryWalk(Walk[DirectoryLevel], ABC):
    """Goes through a tree; what is done there is up to the subclass.

    Args:
        path: of the top, for messages.
        directory: that holds the top.
    """

    def __init__(self, path: Path, directory: int) -> None:
        super().__init__(path)
        self._directory = directory
        self._mount = _mount_id(directory)

    @abstractmethod
    def meet(self, name: str, directory: int) -> None:
        """An entry that is no directory."""

    @abstractmethod
    def done(self, level: DirectoryLevel, here: int, above: int) -> None:
        """All that is in a directory has been met; it, and the one that holds it, are open. Its level is left."""

    @abstractmethod
    def failed(self, error: OSError, name: str, directory: int) -> None:
        """A directory below the top could not be entered."""

    def walk(self, name: str) -> None:
        """Go through the tree with this name."""
        here = self._enter(name, self._directory)
        try:
            while len(self.levels) > 1 or self.levels[0].pending:
                here = self._down(here) if self.levels[-1].pending else self._up(here)
            self.done(self.levels.pop(), here, self._directory)
        finally:
            os.close(here)

    def _down(self, here: int) -> int:
        """Into the next directory, if it can be entered; returns where the walk is now."""
        name = self.levels[-1].pending.pop()
        try:
            below = self._enter(name, here)
        except FileNotFoundError:
            return here
        except OSError as error:
            self.failed(error, name, here)
            return here
        os.close(here)
        return below

    def _up(self, here: int) -> int:
        above = os.open("..", _PARENT, dir_fd=here)
        expected = self.levels[-2]
        found = os.fstat(above)
        if (found.st_dev, found.st_ino) != (expected.device, expected.inode):
            os.close(above)
            raise self.moved()
        try:
            self.done(self.levels.pop(), here, above)
        except BaseException:
            os.close(above)
            raise
        os.close(here)
        return above

    def _enter(self, name: str, directory: int) -> int:
        fd = open_directory(name, directory)
        depth = len(self.levels)
        try:
            _require_mount(fd, self._mount)
            found = os.fstat(fd)
            self.levels.append(DirectoryLevel(name=name, device=found.st_dev, inode=found.st_ino))
            self.scan(fd)
        except BaseException:
            del self.levels[depth:]
            os.close(fd)
            raise
        return fd

    def scan(self, directory: int) -> None:
        """What is in a directory that is entered: directories are pending, the others met."""
        pending = self.levels[-1].pending
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.name)
                else:
                    self.meet(entry.name, directory)


class _Removal(DirectoryWalk):
    def __init__(self, path: Path, directory: int) -> None:
        super().__init__(path, directory)
        self._remains = Remains(self)
        self._is_removed = False

    def remove(self, name: str) -> None:
        for _ in range(REPEATS_MAX):
            self.walk(name)
            if self._is_removed:
                return
            if self._remains.first is not None:
                raise self._remains.first
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(self.path))

    def meet(self, name: str, directory: int) -> None:
        self._unlink(name, directory)

    def done(self, level: DirectoryLevel, here: int, above: int) -> None:  # noqa: ARG002  those of the base class
        try:
            os.rmdir(level.name, dir_fd=above)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._remains.keep_directory(error, level)
            return
        self._is_removed = not self.levels

    def failed(self, error: OSError, name: str, directory: int) -> None:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            self._unlink(name, directory)  # it was a directory when it was listed
        else:
            self._remains.keep(error, name)

    def _unlink(self, name: str, directory: int) -> None:
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            self.levels[-1].pending.append(name)
        except OSError as error:
            self._remains.keep(error, name)


class _Sync(DirectoryWalk):
    def meet(self, name: str, directory: int) -> None:
        with suppress(FileNotFoundError):
            # Looked at before it is opened: a symlink, socket or device cannot, or must not, be.
            if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                return
            fd = os.open(name, _FILE, dir_fd=directory)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def done(self, level: DirectoryLevel, here: int, above: int) -> None:  # noqa: ARG002  those of the base class
        os.fsync(here)

    def failed(self, error: OSError, name: str, directory: int) -> None:  # noqa: ARG002  those of the base class
        raise self.located(error, name)


def _require_mount(fd: int, mount: int) -> None:
    """Refuse what is mounted. The device does not tell: a bind mount may show a part of the same file system."""
    if _mount_id(fd) != mount:
        raise OSError(errno.EBUSY, "a file system is mounted there")


def _mount_id(fd: int) -> int:
    """Which mount an open file was reached through."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key == "mnt_id":
                return int(value)
    raise OSError(errno.ENOTSUP, "the kernel does not tell mounts apart (mnt_id in /proc/self/fdinfo)")
