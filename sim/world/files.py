"""The simulated `Files`: the rules of the real one, on a simulated disk."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, TypeVarTuple

import anyio
from anyio import lowlevel

from sim.world import archiving, linking, new_trees, reading, walking, writing
from sim.world.beneath import SimBeneath

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from actors.ports import Archived, FileDigests, FileLock, FileStat, NewDirectory
    from sim.world.disk import SimDisk

_Rest = TypeVarTuple("_Rest")
_Result = TypeVar("_Result")

# Is told between two parts of an operation which one has just been done, as "replace: renamed".
At: TypeAlias = "Callable[[str], Awaitable[None]]"


class SimFiles:
    """The simulated `Files` of one life of a process.

    Where the real one goes to a thread, this one lets others run, and then does all of it at once. As there, who is
    cancelled in the middle of a change learns it when that is done. Errors, their numbers and their file names are the
    same.

    Args:
        disk: what everybody shares.
        roots: the directories below which alone anything is written.
        owner: whose locks these are; `disk.locks.release_all(owner)` lets them go.
        at: is awaited between the parts of an operation that changes something, and may raise an OSError there, or
            `fence` the process.
        let_others_run: one turn of the event loop.
    """

    def __init__(
        self,
        disk: SimDisk,
        *,
        roots: Sequence[Path],
        owner: object,
        at: At | None = None,
        let_others_run: Callable[[], Awaitable[None]] = lowlevel.checkpoint,
        append_s: Callable[[Path, bytes], float] | None = None,
    ) -> None:
        self._append_s = append_s
        self._disk = disk
        self._beneath = SimBeneath(disk, roots)
        self._owner = owner
        self._is_fenced = False
        self.at = at
        self._one_turn = let_others_run
        # What a call of the dead does instead of returning.
        self.once_dead: Callable[[], Awaitable[object]] = anyio.sleep_forever

    def fence(self) -> None:
        """The process is dead: its calls, begun or to come, never return and change nothing any more."""
        self._is_fenced = True
        self._disk.locks.release_all(self._owner)

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """Read a whole regular file (never blocks on a fifo or device).

        Raises:
            OSError: cannot be read; EISDIR or EINVAL when it is not a regular file.
            TooLargeError: larger than the limit.
        """
        return await self._look(reading.read, path, limit_bytes)

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read at most `limit_bytes` of a regular file from an offset; empty at or after its end."""
        return await self._look(reading.read_from, path, offset_bytes, limit_bytes)

    async def replace(self, path: Path, data: bytes) -> None:
        """Replace atomically and durably."""
        await self._change("replace", writing.replace(self._beneath, path, data, is_watched=self.at is not None), path)

    async def replace_for_boot(self, path: Path, data: bytes) -> None:
        """Replace atomically; nothing is synced."""
        await self._change("replace_for_boot", writing.replace_for_boot(self._beneath, path, data), path)

    async def make_links(self, path: Path, links: Mapping[str, str]) -> None:
        """Make a directory 0755 of symlinks, from name to target, as a whole; one with just these is left as it is.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something else stands there, EINVAL for what can be no link.
        """
        await self._change("make_links", linking.make_links(self._beneath, path, links), path)

    async def make_tree(self, path: Path, tree: NewDirectory) -> None:
        """Make a directory with all that is in it, as a whole; nothing is synced.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something stands there that is no empty directory.
        """
        await self._change("make_tree", new_trees.make_tree(self._beneath, path, tree), path)

    async def append(self, path: Path, data: bytes) -> None:
        """Append in one write, all or nothing; not yet durable."""
        await self._wait_to_append(path, data)
        await self._change("append", writing.append(self._beneath, path, data, durably=False), path)

    async def append_durably(self, path: Path, data: bytes) -> None:
        """Append in one write, all or nothing, then fdatasync (and fsync of the directory when the file was made)."""
        await self._wait_to_append(path, data)
        await self._change("append_durably", writing.append(self._beneath, path, data, durably=True), path)

    async def _wait_to_append(self, path: Path, data: bytes) -> None:
        seconds = 0.0 if self._append_s is None else self._append_s(path, data)
        if seconds > 0:
            await anyio.sleep(seconds)

    async def truncate(self, path: Path, *, size_bytes: int) -> None:
        """Cut a file to a size; one that is shorter stays as it is."""
        await self._change("truncate", writing.truncate(self._beneath, path, size_bytes), path)

    async def make_directory(self, path: Path) -> None:
        """Make a directory 0700, with its parents, durably; one that exists is left as it is."""
        await self._change("make_directory", self._beneath.make_directory(path), path)

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted.

        Raises:
            OSError: ENOENT, ENOTDIR; EOVERFLOW for more than 100,000 names.
        """
        return await self._look(reading.list_directory, path)

    async def find_in(self, root: Path, path: str) -> Path:
        """Where a process whose root directory is `root` finds a path; it need not be there.

        Raises:
            OSError: ELOOP after too many links; what is on the way cannot be looked at.
        """
        return await self._look(reading.find_below, root, path)

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks; None when nothing does."""
        return await self._look(partial(reading.look_at, follow=True), path)

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        return await self._look(partial(reading.look_at, follow=False), path)

    async def stat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """What stands at each, following symlinks; None where nothing does."""
        return await self._look_at_each(paths, follow=True)

    async def lstat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """What stands at each, not following a last symlink; None where nothing does."""
        return await self._look_at_each(paths, follow=False)

    async def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system and fsync the target's directory."""
        await self._change("rename", writing.rename(self._beneath, source, target), source, target)

    async def remove_file(self, path: Path) -> None:
        """Remove a file, or a symlink itself; absent is fine."""
        await self._change("remove_file", writing.remove_file(self._beneath, path), path)

    async def remove_tree(self, path: Path) -> None:
        """Remove a tree, following no symlink and going into no other mount; absent is fine.

        Raises:
            OSError: the first thing that could not be removed (the rest is); EBUSY for a mount point.
        """
        await self._change("remove_tree", walking.remove_tree(self._beneath, path), path)

    async def unmount_below(self, path: Path) -> None:
        """Unmount whatever is mounted below a directory; nothing is as well. What was in it is not touched."""
        await self._change("unmount_below", walking.unmount_below(self._beneath, path), path)

    async def make_volume(self, path: Path) -> None:
        """Make a directory 0777, its parents 0700, durably; one that exists is left as it is."""
        await self._change("make_volume", archiving.make_volume(self._beneath, path), path)

    async def measure_volumes(self, source: Path, volumes: Sequence[str]) -> int:
        """About how many bytes an archive of these directories would take; those that are not there take none."""
        return await self._look(archiving.measure_volumes, source, volumes)

    async def write_archive(self, path: Path, source: Path, volumes: Sequence[str]) -> Archived:
        """Write directories of a source into a new file; not yet durable.

        Raises:
            OSError: FileExistsError, ENOSPC, …; ENOTDIR for a volume that is no directory.
        """
        parts = archiving.write_archive(self._beneath, path, source, volumes)
        return await self._change("write_archive", parts, path, source)

    async def unpack_archive(self, path: Path, target: Path, volumes: Sequence[str]) -> None:
        """Make a new directory 0700 of what an archive holds; not yet durable.

        Raises:
            DamagedArchiveError: it is no archive of these volumes.
            OSError: FileExistsError, ENOSPC, …
        """
        parts = archiving.unpack_archive(self._beneath, path, target, volumes)
        await self._change("unpack_archive", parts, path, target)

    async def sync_tree(self, path: Path) -> None:
        """Fsync every regular file and directory of a tree, the top last."""
        await self._change("sync_tree", walking.sync_tree(self._beneath, path), path)

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a regular file's content, 64 hex digits."""
        return await self._look(reading.digest, path)

    async def digest_parts(self, path: Path, *, part_bytes: int) -> FileDigests:
        """BLAKE3 of a regular file's content and of its parts, each of this size but the last, in one reading."""
        return await self._look(reading.digest_parts, path, part_bytes)

    async def sha256(self, path: Path) -> str:
        """SHA-256 of a regular file's content, 64 hex digits."""
        return await self._look(reading.sha256, path)

    async def free_bytes(self, path: Path) -> int:
        """Bytes that we may still write on the file system that holds this path."""
        return await self._look(reading.free_bytes, path)

    async def lock(self, path: Path) -> FileLock:
        """Take an exclusive flock on a file (made when absent), at once.

        Raises:
            BlockingIOError: somebody else holds it.
        """
        return await self._change("lock", writing.lock(self._beneath, path, self._owner), path)

    async def _look(
        self,
        call: Callable[[SimDisk, Path, *_Rest], _Result],
        path: Path,
        *args: *_Rest,
    ) -> _Result:
        await self._come_to_turn()
        return self._looked(call, path, *args)

    def _looked(self, call: Callable[[SimDisk, Path, *_Rest], _Result], path: Path, *args: *_Rest) -> _Result:
        try:
            return call(self._disk, path, *args)
        except OSError as error:
            _name(error, (path,))
            raise

    async def _come_to_turn(self) -> None:
        if not self._is_fenced:
            await self._one_turn()
        if self._is_fenced:
            await self.once_dead()

    async def _look_at_each(self, paths: Sequence[Path], *, follow: bool) -> tuple[FileStat | None, ...]:
        await self._come_to_turn()
        return tuple(self._looked(partial(reading.look_at, follow=follow), path) for path in paths)

    async def _change(self, operation: str, parts: Generator[str, None, _Result], *paths: Path) -> _Result:
        await self._come_to_turn()
        failure: OSError | None = None
        try:
            while True:
                point = next(parts) if failure is None else parts.throw(failure)
                failure = None if self.at is None else await self._pause(self.at, f"{operation}: {point}")
        except StopIteration as end:
            result: _Result = end.value
            return result
        except OSError as error:
            _name(error, paths)
            raise

    async def _pause(self, at: At, point: str) -> OSError | None:
        """Between two parts; returns what goes wrong there. A thread cannot be cancelled, so this is not either."""
        failure: OSError | None = None
        with anyio.CancelScope(shield=True):
            try:
                await at(point)
            except OSError as error:
                failure = error
        if self._is_fenced:
            await self.once_dead()
        return failure


def _name(error: OSError, paths: Sequence[Path]) -> None:
    """Say which path an error is about, where the kernel was only given a name or a descriptor."""
    if not isinstance(error.filename, str) or not error.filename.startswith("/"):
        error.filename = str(next((path for path in paths if path.name == error.filename), paths[0]))
