"""Whole simulated trees, entry by entry, by the rules of the real port (supervisor/host/trees.py).

Nothing is called recursively: a tree may be deeper than Python's stack.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from sim.world.errors import kernel_error
from sim.world.nodes import Directory, Regular
from supervisor.tree_walk import REPEATS_MAX, Level, Remains, Walk

if TYPE_CHECKING:
    from pathlib import Path

    from sim.world.beneath import SimBeneath, Steps
    from sim.world.disk import SimDisk


def remove_tree(beneath: SimBeneath, path: Path) -> Steps:
    """Remove a tree, following no symlink and going into no other volume; absent is fine.

    Raises:
        OSError: the first thing that could not be removed (the rest is); EBUSY for a mount point, ELOOP and ENOTDIR
            when the top is no directory.
    """
    with suppress(FileNotFoundError):
        directory, name = beneath.parent(path)
        yield from _Removal(beneath.disk, path, directory).remove(name)


def unmount_below(beneath: SimBeneath, path: Path) -> Steps:
    """Unmount whatever is mounted below a directory, the deepest first; nothing is as well, and a link."""
    directory, name = beneath.parent(path)
    if not isinstance(directory.entries.get(name), Directory):
        return
    for point in reversed(beneath.disk.mounts_below(path)):
        beneath.disk.unmount(point)
        yield "unmounted"


def sync_tree(beneath: SimBeneath, path: Path) -> Steps:
    """Sync every regular file and directory of a tree: of each directory first what is in it, so the top is the last.

    Raises:
        OSError: a file could not be synced, so may be lost; ENOENT when there is no tree.
    """
    directory, name = beneath.parent(path)
    walk = _Walk(beneath.disk, path, directory)
    walk.enter(name)
    while walk.levels:
        level = walk.levels[-1]
        if not level.pending:
            beneath.disk.sync(level.directory)
            walk.leave()
            yield "directory synced"
            continue
        name = level.pending.pop()
        node = level.directory.entries.get(name)
        if isinstance(node, Directory):
            try:
                walk.enter(name)
            except OSError as error:
                raise walk.located(error, name) from None
        elif isinstance(node, Regular):
            beneath.disk.sync(node)
            yield "file synced"


@attrs.define(kw_only=True)
class _Level(Level):
    """A level whose pending names are those of everything in it; directories come last."""

    directory: Directory


class _Walk(Walk[_Level]):
    """Where a walk through a tree is.

    Args:
        path: of the top, for messages.
        directory: that holds the top.
    """

    def __init__(self, disk: SimDisk, path: Path, directory: Directory) -> None:
        super().__init__(path)
        self._disk = disk
        self._directory = directory

    def enter(self, name: str) -> None:
        """Go down into a directory.

        Raises:
            OSError: ENOENT, ENOTDIR, ELOOP; EBUSY when something is mounted there.
        """
        directory = self._disk.enter(self.here, name)
        if directory.volume is not self._directory.volume:
            raise OSError(errno.EBUSY, "a file system is mounted there")
        names = self._disk.names(directory)
        directories = [name for name in names if isinstance(directory.entries.get(name), Directory)]
        others = [name for name in names if not isinstance(directory.entries.get(name), Directory)]
        self.levels.append(_Level(name=name, directory=directory, pending=[*directories, *others]))

    def leave(self) -> _Level:
        """Go up to where the walk came from.

        Raises:
            OSError: ESTALE when that is not above any more.
        """
        parent = self.levels[-1].directory.parent
        # One that was removed still has its `..`.
        if len(self.levels) > 1 and parent is not None and parent is not self.levels[-2].directory:
            raise self.moved()
        return self.levels.pop()

    @property
    def here(self) -> Directory:
        """The directory that is walked through now."""
        return self.levels[-1].directory if self.levels else self._directory


class _Removal(_Walk):
    def __init__(self, disk: SimDisk, path: Path, directory: Directory) -> None:
        super().__init__(disk, path, directory)
        self._remains = Remains(self)

    def remove(self, name: str) -> Steps:
        for _ in range(REPEATS_MAX):
            self.enter(name)
            while self.levels:
                depth = len(self.levels)
                if self.levels[-1].pending:
                    self._meet(self.levels[-1].pending.pop())
                else:
                    self._end(self.leave())
                if len(self.levels) <= depth:
                    yield "removed"
            if name not in self._directory.entries:
                return
            if self._remains.first is not None:
                raise self._remains.first
        raise kernel_error(errno.ENOTEMPTY, str(self.path))

    def _meet(self, name: str) -> None:
        try:
            if isinstance(self._disk.look(self.here, name), Directory):
                self.enter(name)
            else:
                self._disk.remove(self.here, name)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            self.levels[-1].pending.append(name)
        except OSError as error:
            self._remains.keep(error, name)

    def _end(self, level: _Level) -> None:
        try:
            self._disk.remove_directory(self.here, level.name)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._remains.keep_directory(error, level)
