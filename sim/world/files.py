"""The simulated `Files`: the rules of the real one, on a simulated disk."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, TypeVarTuple

import anyio
from anyio import lowlevel

from sim.world import linking, reading, walking, writing
from sim.world.beneath import SimBeneath

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from actors.ports import FileLock, FileStat
    from sim.world.disk import SimDisk

_Rest = TypeVarTuple("_Rest")
_Result = TypeVar("_Result")

# Is told between two parts of an operation which one has just been done, as "replace: renamed".
At: TypeAlias = "Callable[[str], Awaitable[None]]"


class SimFiles:
    """The simulated `Files` of one life of a process.

    Where the real one goes to a thread, this one lets others run, and then does all of it at once. As there, who is
    cancelled meanwhile learns it when the operation is done. Errors, their numbers and their file names are the same.

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
    ) -> None:
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

    async def replace_executable(self, path: Path, data: bytes) -> None:
        """Replace atomically, for this boot, a program: it and its directory (made when absent) get 0755."""
        await self._change("replace_executable", writing.replace_executable(self._beneath, path, data), path)

    async def replace_readable(self, path: Path, data: bytes) -> None:
        """Replace atomically, for this boot, a file that everybody may read, in a directory (made when absent) 0755."""
        await self._change("replace_readable", writing.replace_readable(self._beneath, path, data), path)

    async def make_links(self, path: Path, links: Mapping[str, str]) -> None:
        """Make a directory 0755 of symlinks, from name to target, as a whole; one with just these is left as it is.

        Raises:
            OSError: ENOTEMPTY or ENOTDIR when something else stands there, EINVAL for what can be no link.
        """
        await self._change("make_links", linking.make_links(self._beneath, path, links), path)

    async def append(self, path: Path, data: bytes) -> None:
        """Append in one write, all or nothing; not yet durable."""
        await self._change("append", writing.append(self._beneath, path, data, durably=False), path)

    async def append_durably(self, path: Path, data: bytes) -> None:
        """Append in one write, all or nothing, then fdatasync (and fsync of the directory when the file was made)."""
        await self._change("append_durably", writing.append(self._beneath, path, data, durably=True), path)

    async def truncate(self, path: Path, *, size_bytes: int) -> None:
        """Cut a file to a size; one that is shorter stays as it is."""
        await self._change("truncate", writing.truncate(self._beneath, path, size_bytes), path)

    async def make_directory(self, path: Path) -> None:
        """Make a directory 0700, with its parents, durably; one that exists is left as it is."""
        await self._change("make_directory", self._beneath.make_directory(path), path)

    async def make_directory_for_boot(self, path: Path) -> None:
        """Make a directory 0700, with its parents; nothing is synced, and one that exists is left as it is."""
        await self._change("make_directory_for_boot", self._beneath.make_directory_for_boot(path), path)

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted.

        Raises:
            OSError: ENOENT, ENOTDIR; EOVERFLOW for more than 100,000 names.
        """
        return await self._look(reading.list_directory, path)

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks; None when nothing does."""
        return await self._look(partial(reading.look_at, follow=True), path)

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        return await self._look(partial(reading.look_at, follow=False), path)

    async def read_link(self, path: Path) -> str | None:
        """Where the symlink that stands there leads, as it says; None when none does."""
        return await self._look(reading.read_link, path)

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

    async def sync_tree(self, path: Path) -> None:
        """Fsync every regular file and directory of a tree, the top last."""
        await self._change("sync_tree", walking.sync_tree(self._beneath, path), path)

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a regular file's content, 64 hex digits."""
        return await self._look(reading.digest, path)

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
        if not self._is_fenced:
            await self._one_turn()
        if self._is_fenced:
            await self.once_dead()
        try:
            return call(self._disk, path, *args)
        except OSError as error:
            _name(error, (path,))
            raise

    async def _change(self, operation: str, parts: Generator[str, None, _Result], *paths: Path) -> _Result:
        if not self._is_fenced:
            await self._one_turn()
        if self._is_fenced:
            await self.once_dead()
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
