"""Writing only below our own directories: every path is walked component by component, and no symlink is followed.

The directories we write in are also written by others: an actor's files are unpacked there, a tool may be tricked into
placing a link. A path that was looked at and then opened by its name can lead elsewhere in between; a directory held
open by descriptor cannot. (openat2(2) with RESOLVE_BENEATH would do in one call, but Python 3.11 does not have it.)

Source: open(2) O_NOFOLLOW and O_DIRECTORY, symlink(7) of man-pages 6.9.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
DIRECTORY_MODE: Final = 0o700


class Beneath:
    """The directories below which we may write.

    Args:
        roots: absolute paths. They and what is above them may be symlinks; they were chosen by who runs us.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        for root in roots:
            if not root.is_absolute() or ".." in root.parts:
                raise ValueError(f"a root is an absolute path without '..', not {root}")
        # The deepest first, so that a root below another one is found.
        self._roots = sorted(set(roots), key=lambda root: len(root.parts), reverse=True)

    def split(self, path: Path) -> tuple[Path, tuple[str, ...]]:
        """The root that holds a path, and the names that lead there from it.

        Raises:
            PermissionError: it is below no root, or has a `..` in it.
        """
        if ".." not in path.parts:
            for root in self._roots:
                if path.is_relative_to(root):
                    return root, path.relative_to(root).parts
        raise PermissionError(errno.EPERM, "not below a directory of ours", str(path))

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[int, str]]:
        """The directory that holds a path, open, and the last name.

        Raises:
            PermissionError: it is below no root, or is one.
            OSError: ENOENT, ENOTDIR, ELOOP (a symlink on the way).
        """
        root, names = self.split(path)
        if not names:
            raise PermissionError(errno.EPERM, "a root itself is not to be replaced", str(path))
        fd = _walk(root, names[:-1])
        try:
            yield fd, names[-1]
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        """Make a directory 0700 with its parents, each durably; what exists is left as it is.

        Raises:
            PermissionError: it is below no root.
            OSError: ENOTDIR, ELOOP.
        """
        self._make_each(path, _make_durably)

    def make_directory_for_boot(self, path: Path) -> None:
        """Make a directory as `make_directory` does, but sync nothing below the root.

        Raises:
            PermissionError: it is below no root.
            OSError: ENOTDIR, ELOOP.
        """
        self._make_each(path, _make)

    def _make_each(self, path: Path, make: Callable[[str, int], object]) -> None:
        root, names = self.split(path)
        if not os.path.isdir(root):
            _make_root(root)
        fd = os.open(root, _DIRECTORY)
        try:
            for name in names:
                make(name, fd)
                below = open_directory(name, fd)
                os.close(fd)
                fd = below
        finally:
            os.close(fd)


def open_directory(name: str, directory: int) -> int:
    """Open a directory in a directory, not following a symlink.

    Raises:
        OSError: ENOENT, ENOTDIR, ELOOP.
    """
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except NotADirectoryError:
        # With O_DIRECTORY, Linux calls a symlink that is not followed "not a directory".
        refuse_symlink(name, directory)
        raise


def refuse_symlink(name: str, directory: int) -> None:
    """Raise ELOOP when a symlink stands there: an operation that takes the place of what is there would hide it."""
    with suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)


def _walk(root: Path, names: Sequence[str]) -> int:
    fd = os.open(root, _DIRECTORY)
    for name in names:
        try:
            below = open_directory(name, fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _make_durably(name: str, directory: int) -> None:
    if _make(name, directory):
        os.fsync(directory)


def _make(name: str, directory: int) -> bool:
    """Make a directory; returns whether there was none."""
    try:
        os.mkdir(name, DIRECTORY_MODE, dir_fd=directory)
    except FileExistsError:
        return False
    return True


def _make_root(root: Path) -> None:
    missing = [root]
    while not os.path.isdir(missing[-1].parent):
        missing.append(missing[-1].parent)
    for path in reversed(missing):
        # Nothing below a root is durable before the root itself is.
        above = os.open(path.parent, _DIRECTORY)
        try:
            _make_durably(path.name, above)
        finally:
            os.close(above)
