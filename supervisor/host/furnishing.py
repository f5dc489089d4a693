"""What a tree of files may need besides the files of `HostFiles`: modes, symlinks and device nodes, for commands.

Everything here blocks. What is as it should be already is left alone, so that to furnish twice is to furnish once.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from supervisor.host import trees, writing
from supervisor.host.beneath import Beneath

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY_MODE: Final = 0o755


class Furnishing:
    """Makes what belongs into one directory, which everybody may read. Nothing is made outside it.

    Args:
        root: an absolute path; the directory above it exists.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._beneath = Beneath((root,))

    def open_root(self) -> frozenset[str]:
        """Make the root unless it exists; the names in it.

        Raises:
            OSError: ENOENT, ENOTDIR, EACCES.
        """
        with suppress(FileExistsError):
            self._root.mkdir(DIRECTORY_MODE)
        return self.names(self._root)

    def names(self, directory: Path) -> frozenset[str]:
        """The names in a directory.

        Raises:
            OSError: it cannot be listed.
        """
        return frozenset(os.listdir(directory))

    def directory(self, path: Path) -> None:
        """Make a directory with its parents; each one on the way gets mode 0755."""
        for each in reversed([path, *path.parents]):
            if each != self._root and each.is_relative_to(self._root):
                self._beneath.make_directory(each)
                with self._beneath.parent(each / "any") as (fd, _):
                    os.fchmod(fd, DIRECTORY_MODE)

    def file(self, path: Path, data: bytes, *, mode: int) -> None:
        """Replace a file atomically."""
        writing.replace(self._beneath, path, data, mode=mode)

    def symlink(self, path: Path, target: str) -> None:
        """Put a symlink in the place of whatever file or symlink is there."""
        with self._beneath.parent(path) as (directory, name):
            with suppress(OSError):  # ENOENT, or EINVAL: no symlink
                if os.readlink(name, dir_fd=directory) == target:
                    return
            _put(name, directory, lambda temporary: os.symlink(target, temporary, dir_fd=directory))

    def character_device(self, path: Path, device: tuple[int, int], *, mode: int) -> None:
        """Put the node of a character device in the place of whatever file or symlink is there.

        Raises:
            PermissionError: we may not make device nodes.
        """
        number = os.makedev(*device)
        with self._beneath.parent(path) as (directory, name):
            with suppress(FileNotFoundError):
                there = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISCHR(there.st_mode) and (there.st_rdev, there.st_mode & 0o777) == (number, mode):
                    return

            def make(temporary: str) -> None:
                os.mknod(temporary, mode | stat.S_IFCHR, number, dir_fd=directory)
                os.chmod(temporary, mode, dir_fd=directory)  # whatever the umask

            _put(name, directory, make)

    def remove(self, path: Path) -> None:
        """Remove a file, a symlink, a node or a tree; absent is fine.

        Raises:
            OSError: EBUSY for a mount point.
        """
        with suppress(IsADirectoryError):
            writing.remove_file(self._beneath, path)
            return
        trees.remove_tree(self._beneath, path)

    def remove_root(self) -> None:
        """Remove the root itself, which is empty."""
        self._root.rmdir()


def may_not_make_nodes(error: OSError) -> bool:
    """Whether this is what mknod(2) says to those who may make no device nodes."""
    return error.errno == errno.EPERM


def _put(name: str, directory: int, make: Callable[[str], None]) -> None:
    """Make something under a temporary name and rename it: there is no moment without it."""
    temporary = f".{name}.{secrets.token_hex(8)}.tmp"
    try:
        make(temporary)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
