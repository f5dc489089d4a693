"""The port for files: those of ours, below known roots, and those that we were given, only read."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class FileKind(enum.StrEnum):
    """What stands at a path, not following a last symlink."""

    REGULAR = "regular"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    CHARACTER_DEVICE = "characterDevice"
    OTHER = "other"


@attrs.frozen(kw_only=True)
class FileStat:
    """What stat(2) says, as far as anything here needs it. `device` is (major, minor) of a device node, else None."""

    kind: FileKind
    size_bytes: int
    mode: int
    inode: int
    mtime_ns: int
    device: tuple[int, int] | None = None


class TooLargeError(OSError):
    """Raised when a file is larger than the limit it was to be read with."""


class FileLock(Protocol):
    """A held flock(2); released by `close` or with the process."""

    def close(self) -> None:
        """Release it."""
        ...


class Files(Protocol):
    """Files of ours (below the state and run directories) and files we were given (only read).

    Writing paths are resolved component by component by dirfd: a symlink anywhere below the directory that `rooted`
    names is refused with ELOOP, so that nothing is ever written outside it. Directories are made 0700, files 0600.

    What means nothing once the machine was booted anew is written `for_boot`: whoever reads finds it whole, but nothing
    is synced, so that after a power cut it may be there, absent, empty or torn, and its directory with it. Programs and
    readable files of a sandbox are always of that kind. Nothing that has to last goes below a directory made so.
    """

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """Read a whole regular file (never blocks on a fifo or device).

        Raises:
            OSError: cannot be read; EISDIR or EINVAL when it is not a regular file.
            TooLargeError: larger than the limit.
        """
        ...

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read at most `limit_bytes` of a regular file from an offset; empty at or after its end."""
        ...

    async def replace(self, path: Path, data: bytes) -> None:
        """Replace atomically and durably: temporary file beside it, fsync, rename, fsync of the directory."""
        ...

    async def replace_for_boot(self, path: Path, data: bytes) -> None:
        """Replace atomically, for this boot: temporary file beside it, rename."""
        ...

    async def replace_executable(self, path: Path, data: bytes) -> None:
        """Replace a program atomically, for this boot; it and its directory (made when absent) get mode 0755.

        The one exception to 0600 and 0700: a sandbox's root runs its program as a user that owns neither. Directories
        above keep 0700, so that nobody else on the host reaches it.
        """
        ...

    async def replace_readable(self, path: Path, data: bytes) -> None:
        """Replace a file that a container's own user reads: it gets mode 0644, its directory (made when absent) 0755.

        As with a program, directories above keep 0700, and it is for this boot.
        """
        ...

    async def make_links(self, path: Path, links: Mapping[str, str]) -> None:
        """Make a directory 0755 of symlinks, from name to target, as a whole: nobody ever finds a part of it.

        It is made beside its place with its parents, durably, and renamed. One that has just these links is left as it
        is, so that what uses it is not disturbed; an empty one is replaced.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something else stands there, EINVAL for what can be no link.
        """
        ...

    async def append(self, path: Path, data: bytes) -> None:
        """Append in one write; the file is made when absent, its name durably. What is written is not yet durable."""
        ...

    async def append_durably(self, path: Path, data: bytes) -> None:
        """Append in one write, then fdatasync (and fsync of the directory when the file was made)."""
        ...

    async def truncate(self, path: Path, *, size_bytes: int) -> None:
        """Cut a file to a size; how a log that its writer holds open O_APPEND is rotated."""
        ...

    async def make_directory(self, path: Path) -> None:
        """Make a directory 0700, with its parents, each durably; one that exists is left as it is."""
        ...

    async def make_directory_for_boot(self, path: Path) -> None:
        """Make a directory 0700, with its parents, for this boot; one that exists is left as it is."""
        ...

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted; FileNotFoundError when absent, NotADirectoryError when it is none."""
        ...

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks; None when nothing does."""
        ...

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        ...

    async def read_link(self, path: Path) -> str | None:
        """Where the symlink that stands there leads, as it says; None when none does."""
        ...

    async def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system and fsync the target's directory."""
        ...

    async def remove_file(self, path: Path) -> None:
        """Remove a file; absent is fine."""
        ...

    async def remove_tree(self, path: Path) -> None:
        """Remove a tree by dirfd, following no symlink and crossing into no other file system; absent is fine.

        Raises:
            OSError: something could not be removed; EBUSY for a mount point.
        """
        ...

    async def sync_tree(self, path: Path) -> None:
        """Sync (fsync) every regular file and directory of a tree, the top last."""
        ...

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a regular file's content, 64 hex digits."""
        ...

    async def sha256(self, path: Path) -> str:
        """SHA-256 of a regular file's content, 64 hex digits: for what others identify that way."""
        ...

    async def free_bytes(self, path: Path) -> int:
        """Bytes that we may still write on the file system that holds this path."""
        ...

    async def lock(self, path: Path) -> FileLock:
        """Take an exclusive flock on a file (made when absent), at once.

        Raises:
            BlockingIOError: somebody else holds it.
        """
        ...
