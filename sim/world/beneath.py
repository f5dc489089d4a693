"""Which directories a simulated process may write below, and the way there, component by component.

Here and in the modules of what is done there, an operation is a generator that yields the name of a point whenever the
next part of it begins: between two parts the process can be killed, and everybody else can do something. It is not
closed tidily by that: what is undone after an error is not undone by the dead.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from sim.world import lookup
from sim.world.errors import kernel_error
from sim.world.nodes import Directory, Symlink

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from sim.world.disk import SimDisk

Steps: TypeAlias = "Generator[str, None, None]"

DIRECTORY_MODE: Final = 0o700
_WAYS_MAX: Final = 4096


class SimBeneath:
    """The directories below which a process may write.

    Args:
        disk: what it writes to.
        roots: absolute paths. They and what is above them may be symlinks.
    """

    def __init__(self, disk: SimDisk, roots: Sequence[Path]) -> None:
        for root in roots:
            if not root.is_absolute() or ".." in root.parts:
                raise ValueError(f"a root is an absolute path without '..', not {root}")
        self.disk = disk
        self._ways: set[tuple[str, ...]] = set()
        # The deepest first, so that a root below another one is found.
        self._roots = sorted(((root, root.parts) for root in set(roots)), key=lambda found: -len(found[1]))

    def split(self, path: Path) -> tuple[Path, tuple[str, ...]]:
        """The root that holds a path, and the names that lead there from it.

        Raises:
            PermissionError: it is below no root, or has a `..` in it.
        """
        parts = path.parts
        if ".." not in parts:
            for root, names in self._roots:
                if parts[: len(names)] == names:
                    return root, parts[len(names) :]
        raise PermissionError(errno.EPERM, "not below a directory of ours", str(path))

    def parent(self, path: Path) -> tuple[Directory, str]:
        """The directory that holds a path, and the last name.

        Raises:
            PermissionError: it is below no root, or is one.
            OSError: ENOENT, ENOTDIR, ELOOP (a symlink on the way).
        """
        parts = path.parts
        way = parts[1:-1]
        # What is below a root once is so always, and nearly every path has a directory that was seen before.
        directory = self.disk.find_plainly(way) if way in self._ways else None
        if directory is not None:
            return directory, parts[-1]
        root, names = self.split(path)
        if not names:
            raise PermissionError(errno.EPERM, "a root itself is not to be replaced", str(path))
        if len(self._ways) >= _WAYS_MAX:
            self._ways.clear()
        self._ways.add(way)
        directory = self.disk.find_plainly(way)
        if directory is None:
            directory = self.disk.find_directory(root)
            for name in names[:-1]:
                directory = self.disk.enter(directory, name)
        return directory, names[-1]

    def make_directory(self, path: Path) -> Steps:
        """Make a directory 0700 with its parents, each durably; what exists is left as it is.

        Raises:
            PermissionError: it is below no root.
            OSError: ENOTDIR, ELOOP.
        """
        yield from self._make_each(path, self._make_durably)

    def make_directory_for_boot(self, path: Path) -> Steps:
        """Make a directory as `make_directory` does, but sync nothing below the root.

        Raises:
            PermissionError: it is below no root.
            OSError: ENOTDIR, ELOOP.
        """
        yield from self._make_each(path, self._make)

    def _make_each(self, path: Path, make: Callable[[Directory, str], Steps]) -> Steps:
        root, names = self.split(path)
        if not self._is_directory(root):
            yield from self._make_root(root)
        directory = self.disk.find_directory(root)
        for name in names:
            yield from make(directory, name)
            directory = self.disk.enter(directory, name)

    def refuse_symlink(self, directory: Directory, name: str) -> None:
        """Raise ELOOP when a symlink stands there: what takes the place of it would hide it."""
        if name not in directory.entries:
            lookup.require_short(name)
            return
        with suppress(FileNotFoundError):
            if isinstance(self.disk.look(directory, name), Symlink):
                raise kernel_error(errno.ELOOP, name)

    def _make_durably(self, directory: Directory, name: str) -> Steps:
        for made in self._make(directory, name):
            yield made
            self.disk.sync(directory)
            yield "synced"

    def _make(self, directory: Directory, name: str) -> Steps:
        try:
            self.disk.make_directory(directory, name, DIRECTORY_MODE)
        except FileExistsError:
            return
        yield "made"

    def _make_root(self, root: Path) -> Steps:
        missing = [root]
        while not self._is_directory(missing[-1].parent):
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            yield from self._make_durably(self.disk.find_directory(path.parent), path.name)

    def _is_directory(self, path: Path) -> bool:
        try:
            self.disk.find_directory(path)
        except OSError:
            return False
        return True
