"""Files of ours, written below our directories, and files we were given, only read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from actors.ports.rooted import find_in
from supervisor.host import archiving, linking, locks, new_trees, reading, trees, unmounting, unpacking, writing
from supervisor.host.beneath import Beneath
from supervisor.host.looks import Looks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actors.ports import Archived, FileDigests, FileLock, FileStat, NewDirectory

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# Threads for what takes milliseconds, and apart from them for what takes as long as a snapshot is large, so that no
# status has to wait for a snapshot. Looks that may be left behind have theirs apart from both, so that no write has to
# wait for what hangs; and how much room there is has its own, for it is asked again and again, of the same disk.
_SHORT_MAX: Final = 16
_LONG_MAX: Final = 4
_LOOKS_MAX: Final = 16
_ROOM_LOOKS_MAX: Final = 4


class HostFiles:
    """The real `Files`.

    Everything that can block runs in a thread. Who is cancelled meanwhile learns it when the operation is done, or
    undone; only `read_from`, `stat` and `free_bytes`, which change nothing and are what is asked with a deadline, are
    left behind at once (`supervisor.host.looks`).

    Args:
        roots: the directories below which alone anything is written; a write elsewhere is refused with EPERM, a symlink
            below one with ELOOP. They need not exist yet.
    """

    def __init__(self, *, roots: Sequence[Path]) -> None:
        self._beneath = Beneath(roots)
        self._short = anyio.CapacityLimiter(_SHORT_MAX)
        self._long = anyio.CapacityLimiter(_LONG_MAX)
        self._looks, self._room_looks = Looks(_LOOKS_MAX), Looks(_ROOM_LOOKS_MAX)

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """Read a whole regular file (never blocks on a fifo or device).

        Raises:
            OSError: cannot be read; EISDIR or EINVAL when it is not a regular file.
            TooLargeError: larger than the limit.
        """
        return await self._in_thread(reading.read, path, limit_bytes)

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read at most `limit_bytes` of a regular file from an offset; empty at or after its end."""
        return await self._looks.run(partial(_named, reading.read_from, path, offset_bytes, limit_bytes))

    async def replace(self, path: Path, data: bytes) -> None:
        """Replace atomically and durably."""
        await self._in_thread(writing.replace, self._beneath, path, data)

    async def replace_for_boot(self, path: Path, data: bytes) -> None:
        """Replace atomically; nothing is synced."""
        await self._in_thread(writing.replace_for_boot, self._beneath, path, data)

    async def make_links(self, path: Path, links: Mapping[str, str]) -> None:
        """Make a directory 0755 of symlinks, from name to target, as a whole; one with just these is left as it is.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something else stands there, EINVAL for what can be no link.
        """
        await self._in_thread(linking.make_links, self._beneath, path, links)

    async def make_tree(self, path: Path, tree: NewDirectory) -> None:
        """Make a directory with all that is in it, as a whole; nothing is synced.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something stands there that is no empty directory.
        """
        await self._in_thread(new_trees.make_tree, self._beneath, path, tree)

    async def append(self, path: Path, data: bytes) -> None:
        """Append in one write, all or nothing; not yet durable."""
        await self._in_thread(partial(writing.append, durably=False), self._beneath, path, data)

    async def append_durably(self, path: Path, data: bytes) -> None:
        """Append in one write, all or nothing, then fdatasync (and fsync of the directory when the file was made)."""
        await self._in_thread(partial(writing.append, durably=True), self._beneath, path, data)

    async def truncate(self, path: Path, *, size_bytes: int) -> None:
        """Cut a file to a size; one that is shorter stays as it is."""
        await self._in_thread(writing.truncate, self._beneath, path, size_bytes)

    async def make_directory(self, path: Path) -> None:
        """Make a directory 0700, with its parents, durably; one that exists is left as it is."""
        await self._in_thread(self._beneath.make_directory, path)

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted.

        Raises:
            OSError: ENOENT, ENOTDIR; EOVERFLOW for more than 100,000 names.
        """
        return await self._in_thread(reading.list_directory, path)

    async def find_in(self, root: Path, path: str) -> Path:
        """Where a process whose root directory is `root` finds a path; it need not be there.

        Raises:
            OSError: ELOOP after too many links; what is on the way cannot be looked at.
        """
        return await self._in_thread(find_in, root, path, reading.read_link)

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks; None when nothing does."""
        return await self._looks.run(partial(_named, reading.look_at, path, follow=True))

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        return await self._in_thread(partial(reading.look_at, follow=False), path)

    async def stat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """What stands at each, following symlinks; None where nothing does."""
        return await self._in_thread(partial(_look_at_each, follow=True), paths)

    async def lstat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """What stands at each, not following a last symlink; None where nothing does."""
        return await self._in_thread(partial(_look_at_each, follow=False), paths)

    async def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system and fsync the target's directory."""
        await self._in_thread(writing.rename, self._beneath, source, target)

    async def remove_file(self, path: Path) -> None:
        """Remove a file, or a symlink itself; absent is fine."""
        await self._in_thread(writing.remove_file, self._beneath, path)

    async def remove_tree(self, path: Path) -> None:
        """Remove a tree by dirfd, following no symlink and going into no other mount; absent is fine.

        Raises:
            OSError: the first thing that could not be removed (the rest is); EBUSY for a mount point.
        """
        await self._in_long_thread(trees.remove_tree, self._beneath, path)

    async def unmount_below(self, path: Path) -> None:
        """Unmount whatever is mounted below a directory; nothing is as well. What was in it is not touched.

        Raises:
            OSError: something stays mounted.
        """
        await self._in_thread(unmounting.unmount_below, self._beneath, path)

    async def make_volume(self, path: Path) -> None:
        """Make a directory 0777, its parents 0700, durably; one that exists is left as it is."""
        await self._in_thread(archiving.make_volume, self._beneath, path)

    async def measure_volumes(self, source: Path, volumes: Sequence[str]) -> int:
        """About how many bytes an archive of these directories would take; those that are not there take none."""
        return await self._in_long_thread(archiving.measure_volumes, self._beneath, source, volumes)

    async def write_archive(self, path: Path, source: Path, volumes: Sequence[str]) -> Archived:
        """Write directories of a source into a new file; not yet durable.

        Raises:
            OSError: FileExistsError, ENOSPC, …; ENOTDIR for a volume that is no directory.
        """
        return await self._in_long_thread(archiving.write_archive, self._beneath, path, source, volumes)

    async def unpack_archive(self, path: Path, target: Path, volumes: Sequence[str]) -> None:
        """Make a new directory 0700 of what an archive holds; not yet durable.

        Raises:
            DamagedArchiveError: it is no archive of these volumes.
            OSError: FileExistsError, ENOSPC, …
        """
        await self._in_long_thread(unpacking.unpack_archive, self._beneath, path, target, volumes)

    async def sync_tree(self, path: Path) -> None:
        """Fsync every regular file and directory of a tree, the top last."""
        await self._in_long_thread(trees.sync_tree, self._beneath, path)

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a regular file's content, 64 hex digits."""
        return await self._in_long_thread(reading.digest, path)

    async def digest_parts(self, path: Path, *, part_bytes: int) -> FileDigests:
        """BLAKE3 of a regular file's content and of its parts, each of this size but the last, in one reading."""
        return await self._in_long_thread(reading.digest_parts, path, part_bytes)

    async def sha256(self, path: Path) -> str:
        """SHA-256 of a regular file's content, 64 hex digits."""
        return await self._in_long_thread(reading.sha256, path)

    async def free_bytes(self, path: Path) -> int:
        """Bytes that we may still write on the file system that holds this path."""
        return await self._room_looks.run(partial(_named, reading.free_bytes, path))

    async def lock(self, path: Path) -> FileLock:
        """Take an exclusive flock on a file (made when absent), at once.

        Raises:
            BlockingIOError: somebody else holds it.
        """
        return await self._in_thread(locks.lock, self._beneath, path)

    async def _in_thread(
        self, call: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        return await to_thread.run_sync(partial(_named, call, *args, **kwargs), limiter=self._short)

    async def _in_long_thread(
        self, call: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        return await to_thread.run_sync(partial(_named, call, *args, **kwargs), limiter=self._long)


def _look_at_each(paths: Sequence[Path], *, follow: bool) -> tuple[FileStat | None, ...]:
    return tuple(_named(reading.look_at, path, follow=follow) for path in paths)


def _named(call: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
    """Do it; an error says which path it is about, where the kernel was only given a name or a descriptor."""
    try:
        return call(*args, **kwargs)
    except OSError as error:
        if not isinstance(error.filename, str) or not error.filename.startswith("/"):
            paths = [argument for argument in args if isinstance(argument, Path)]
            error.filename = str(next((path for path in paths if path.name == error.filename), paths[0]))
        raise
