"""The port for files: those of ours, below known roots, and those that we were given, only read."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .new_tree import NewDirectory


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


@attrs.frozen(kw_only=True)
class FilePart:
    """A part of a file: its size, and the BLAKE3 of it alone as 64 hex digits."""

    size_bytes: int
    blake3: str


@attrs.frozen(kw_only=True)
class FileDigests:
    """The BLAKE3 of a whole file and of its parts, in order; an empty file has none."""

    blake3: str
    parts: tuple[FilePart, ...]


class TooLargeError(OSError):
    """Raised when a file is larger than the limit it was to be read with."""


class DamagedArchiveError(OSError):
    """Raised when an archive is not one that `write_archive` makes; its number is EBADMSG."""


@attrs.frozen(kw_only=True)
class Archived:
    """What became part of an archive.

    Attributes:
        members: how many files, directories, links and fifos.
        left_out: sockets and devices, which no archive holds; the first hundred, by their names below the source.
    """

    members: int
    left_out: tuple[str, ...] = ()


class FileLock(Protocol):
    """A held flock(2); released by `close` or with the process."""

    def close(self) -> None:
        """Release it."""
        ...


class Files(Protocol):
    """Files of ours (below the state and run directories) and files we were given (only read).

    Writing paths are resolved component by component by dirfd: a symlink anywhere below the directory that `rooted`
    names is refused with ELOOP, so that nothing is ever written outside it. Directories are made 0700, files 0600.

    What means nothing once the machine was booted anew is written for this boot: whoever reads finds it whole, but
    nothing is synced, so that after a power cut it may be there, absent, empty or torn, and its directory with it.
    Nothing that has to last goes below a directory made so.

    Who is cancelled learns it when the operation is done, or undone, however long that takes: the disk may hang. Only
    `read_from`, `stat` and `free_bytes` are left behind at once, so that a deadline around them holds.
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

    async def make_links(self, path: Path, links: Mapping[str, str]) -> None:
        """Make a directory 0755 of symlinks, from name to target, as a whole: nobody ever finds a part of it.

        It is made beside its place with its parents, durably, and renamed. One that has just these links is left as it
        is, so that what uses it is not disturbed; an empty one is replaced.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something else stands there, EINVAL for what can be no link.
        """
        ...

    async def make_tree(self, path: Path, tree: NewDirectory) -> None:
        """Make a directory with all that is in it, for this boot, as a whole: nobody ever finds a part of it there.

        It is made beside its place with its parents, and renamed. Modes are those that it says, whatever the umask; the
        parents keep 0700, so that nobody else on the host reaches what is open to everybody in it. Who is killed
        meanwhile leaves some of it beside its place, under a name of its own.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something stands there that is no empty directory.
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

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted; FileNotFoundError when absent, NotADirectoryError when it is none."""
        ...

    async def find_in(self, root: Path, path: str) -> Path:
        """Where a process whose root directory is `root` finds a path: no link leads out of it; it need not be there.

        Raises:
            OSError: ELOOP after too many links; what is on the way cannot be looked at.
        """
        ...

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks; None when nothing does."""
        ...

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        ...

    async def stat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """As `stat`, of several paths in one go.

        Raises:
            OSError: one of them cannot be looked at; its path is in the error.
        """
        ...

    async def lstat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """As `lstat`, of several paths in one go.

        Raises:
            OSError: one of them cannot be looked at; its path is in the error.
        """
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

    async def unmount_below(self, path: Path) -> None:
        """Unmount whatever is mounted below a directory; nothing is as well. What was in it is not touched.

        Raises:
            OSError: something stays mounted.
        """
        ...

    async def make_volume(self, path: Path) -> None:
        """Make a directory 0777, its parents 0700, durably; one that exists is left as it is.

        Whoever runs in a container may write in it, whatever his number; nobody else on the host reaches it.
        """
        ...

    async def measure_volumes(self, source: Path, volumes: Sequence[str]) -> int:
        """About how many bytes an archive of these directories would take; those that are not there take none."""
        ...

    async def write_archive(self, path: Path, source: Path, volumes: Sequence[str]) -> Archived:
        """Write directories of a source into a new file, as `supervisor.volume_tar` has it; not yet durable.

        The same content makes the same bytes. Nothing is followed, and nothing that is mounted below is entered. What
        they hold must not change meanwhile. On failure there is no file.

        Raises:
            OSError: FileExistsError, ENOSPC, …; ENOTDIR for a volume that is no directory.
        """
        ...

    async def unpack_archive(self, path: Path, target: Path, volumes: Sequence[str]) -> None:
        """Make a new directory 0700 of what an archive holds, which must be just these volumes; not yet durable.

        Nothing is ever made outside of it, whatever the archive says. On failure there is no directory.

        Raises:
            DamagedArchiveError: it is no archive of these volumes.
            OSError: FileExistsError, ENOSPC, …
        """
        ...

    async def sync_tree(self, path: Path) -> None:
        """Sync (fsync) every regular file and directory of a tree, the top last."""
        ...

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a regular file's content, 64 hex digits."""
        ...

    async def digest_parts(self, path: Path, *, part_bytes: int) -> FileDigests:
        """BLAKE3 of a regular file's content and of its parts, each of this size but the last, in one reading."""
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
