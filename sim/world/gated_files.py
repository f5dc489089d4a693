"""The files of one life of the supervisor, each call through its gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from actors.ports import Archived, FileDigests, FileLock, Files, FileStat, NewDirectory
    from sim.world.calls import Gate


class GatedFiles:
    """`Files` through a gate."""

    def __init__(self, gate: Gate, inner: Files) -> None:
        self._gate = gate
        self._inner = inner

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """Read a whole regular file."""
        return await self._gate.cross("files", "read", str(path), self._inner.read, path, limit_bytes=limit_bytes)

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read a part of a regular file."""
        return await self._gate.cross(
            "files",
            "read_from",
            str(path),
            self._inner.read_from,
            path,
            offset_bytes=offset_bytes,
            limit_bytes=limit_bytes,
        )

    async def replace(self, path: Path, data: bytes) -> None:
        """Replace atomically and durably."""
        await self._gate.cross("files", "replace", str(path), self._inner.replace, path, data)

    async def replace_for_boot(self, path: Path, data: bytes) -> None:
        """Replace atomically, for this boot."""
        await self._gate.cross("files", "replace_for_boot", str(path), self._inner.replace_for_boot, path, data)

    async def make_links(self, path: Path, links: Mapping[str, str]) -> None:
        """Make a directory of symlinks."""
        await self._gate.cross("files", "make_links", str(path), self._inner.make_links, path, links)

    async def make_tree(self, path: Path, tree: NewDirectory) -> None:
        """Make a directory with all that is in it."""
        await self._gate.cross("files", "make_tree", str(path), self._inner.make_tree, path, tree)

    async def append(self, path: Path, data: bytes) -> None:
        """Append in one write."""
        await self._gate.cross("files", "append", str(path), self._inner.append, path, data)

    async def append_durably(self, path: Path, data: bytes) -> None:
        """Append in one write, durably."""
        await self._gate.cross("files", "append_durably", str(path), self._inner.append_durably, path, data)

    async def truncate(self, path: Path, *, size_bytes: int) -> None:
        """Cut a file to a size."""
        await self._gate.cross("files", "truncate", str(path), self._inner.truncate, path, size_bytes=size_bytes)

    async def make_directory(self, path: Path) -> None:
        """Make a directory with its parents."""
        await self._gate.cross("files", "make_directory", str(path), self._inner.make_directory, path)

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory."""
        return await self._gate.cross("files", "list_directory", str(path), self._inner.list_directory, path)

    async def find_in(self, root: Path, path: str) -> Path:
        """Where a path leads below another root."""
        return await self._gate.cross("files", "find_in", f"{root}{path}", self._inner.find_in, root, path)

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks."""
        return await self._gate.cross("files", "stat", str(path), self._inner.stat, path)

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink."""
        return await self._gate.cross("files", "lstat", str(path), self._inner.lstat, path)

    async def stat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """What stands at each, following symlinks."""
        return await self._gate.cross("files", "stat_each", " ".join(map(str, paths)), self._inner.stat_each, paths)

    async def lstat_each(self, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
        """What stands at each, not following a last symlink."""
        return await self._gate.cross("files", "lstat_each", " ".join(map(str, paths)), self._inner.lstat_each, paths)

    async def rename(self, source: Path, target: Path) -> None:
        """Rename."""
        await self._gate.cross("files", "rename", f"{source} -> {target}", self._inner.rename, source, target)

    async def remove_file(self, path: Path) -> None:
        """Remove a file."""
        await self._gate.cross("files", "remove_file", str(path), self._inner.remove_file, path)

    async def remove_tree(self, path: Path) -> None:
        """Remove a tree."""
        await self._gate.cross("files", "remove_tree", str(path), self._inner.remove_tree, path)

    async def unmount_below(self, path: Path) -> None:
        """Unmount what is mounted below a directory."""
        await self._gate.cross("files", "unmount_below", str(path), self._inner.unmount_below, path)

    async def make_volume(self, path: Path) -> None:
        """Make a directory that is open to all."""
        await self._gate.cross("files", "make_volume", str(path), self._inner.make_volume, path)

    async def measure_volumes(self, source: Path, volumes: Sequence[str]) -> int:
        """How much an archive would take."""
        measure = self._inner.measure_volumes
        return await self._gate.cross("files", "measure_volumes", str(source), measure, source, volumes)

    async def write_archive(self, path: Path, source: Path, volumes: Sequence[str]) -> Archived:
        """Write directories into an archive."""
        write = self._inner.write_archive
        return await self._gate.cross("files", "write_archive", str(path), write, path, source, volumes)

    async def unpack_archive(self, path: Path, target: Path, volumes: Sequence[str]) -> None:
        """Make a directory of what an archive holds."""
        unpack = self._inner.unpack_archive
        await self._gate.cross("files", "unpack_archive", str(target), unpack, path, target, volumes)

    async def sync_tree(self, path: Path) -> None:
        """Sync a tree."""
        await self._gate.cross("files", "sync_tree", str(path), self._inner.sync_tree, path)

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a file."""
        return await self._gate.cross("files", "digest", str(path), self._inner.digest, path)

    async def digest_parts(self, path: Path, *, part_bytes: int) -> FileDigests:
        """BLAKE3 of a file and of its parts."""
        digest_parts = self._inner.digest_parts
        return await self._gate.cross("files", "digest_parts", str(path), digest_parts, path, part_bytes=part_bytes)

    async def sha256(self, path: Path) -> str:
        """SHA-256 of a file."""
        return await self._gate.cross("files", "sha256", str(path), self._inner.sha256, path)

    async def free_bytes(self, path: Path) -> int:
        """How much room there is."""
        return await self._gate.cross("files", "free_bytes", str(path), self._inner.free_bytes, path)

    async def lock(self, path: Path) -> FileLock:
        """Take an exclusive lock at once."""
        lock = await self._gate.cross("files", "lock", str(path), self._inner.lock, path)
        return GatedLock(self._gate, lock, str(path))


class GatedLock:
    """`FileLock` through a gate."""

    def __init__(self, gate: Gate, inner: FileLock, path: str) -> None:
        self._gate = gate
        self._inner = inner
        self._path = path

    def close(self) -> None:
        """Release it."""
        self._gate.cross_now("files", "unlock", self._path, self._inner.close)
