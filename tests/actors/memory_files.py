"""A Files port in memory, for tests that look at what is written and what happens when a file cannot be."""

import errno
import hashlib
import os
from pathlib import Path

import blake3

from actors.ports import FileDigests, FileKind, FilePart, FileStat, NewFile, TooLargeError
from actors.ports.rooted import find_in
from tests.actors.doubles import Double

DIRECTORY = object()


class MemoryFiles(Double):  # type: ignore[misc]
    """Paths to bytes, or to `DIRECTORY`. `fail(operation, path, errno)` makes one operation on one path fail."""

    def __init__(self, content=()):
        self.content = {Path(path): data for path, data in dict(content).items()}
        self.failures = {}
        self.synced = []
        self.targets = {}
        self.devices = {}
        self.modes = {}
        self.room_bytes = 1 << 40

    def fail(self, operation, path, number):
        self.failures[operation, Path(path)] = number

    def _check(self, operation, path):
        number = self.failures.get((operation, Path(path)))
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))

    def _file(self, path):
        data = self.content.get(path)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if data is DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return data

    async def read(self, path, *, limit_bytes):
        self._check("read", path)
        data = self._file(path)
        if len(data) > limit_bytes:
            raise TooLargeError(errno.EFBIG, "too large", str(path))
        return data

    async def read_from(self, path, *, offset_bytes, limit_bytes):
        self._check("read", path)
        return self._file(path)[offset_bytes : offset_bytes + limit_bytes]

    async def replace(self, path, data):
        self._check("replace", path)
        if self.content.get(path.parent) is not DIRECTORY:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.content[path] = data

    async def replace_for_boot(self, path, data):
        await self.replace(path, data)

    async def make_links(self, path, links):
        self._check("make_links", path)
        if path in self.content and self._links(path) != dict(links):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        await self.make_directory(path)
        for name, target in links.items():
            self.content[path / name] = target.encode()
            self.targets[path / name] = target

    async def make_tree(self, path, tree):
        made = dict(self._tree(path, tree))
        for each in made:
            self._check("make_tree", each)
        await self.make_directory(path.parent)
        self.content |= made

    def _tree(self, path, tree):
        yield path, DIRECTORY
        for name, entry in tree.entries.items():
            if isinstance(entry, NewFile):
                yield path / name, entry.data
            else:
                yield from self._tree(path / name, entry)

    def _links(self, path):
        return {each.name: target for each, target in self.targets.items() if each.parent == path}

    def put_device(self, path, major, minor):
        """A character device of somebody else's."""
        self.content[Path(path)], self.devices[Path(path)] = b"", (major, minor)

    async def make_directory(self, path):
        self._check("make_directory", path)
        for directory in (path, *path.parents):
            self.content.setdefault(directory, DIRECTORY)

    async def list_directory(self, path):
        self._check("list_directory", path)
        if path not in self.content:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return tuple(sorted(each.name for each in self.content if each.parent == path and each != path))

    async def find_in(self, root, path):
        return find_in(root, path, self.targets.get)

    async def stat(self, path):
        return await self.lstat(path)

    async def lstat(self, path):
        self._check("lstat", path)
        data = self.content.get(path)
        if data is None:
            return None
        is_directory = data is DIRECTORY
        size_bytes = 0 if is_directory else len(data)
        device = self.devices.get(path)
        return FileStat(kind=self._kind(path), size_bytes=size_bytes, mode=0o600, inode=1, mtime_ns=0, device=device)

    async def stat_each(self, paths):
        return tuple([await self.stat(path) for path in paths])

    async def lstat_each(self, paths):
        return tuple([await self.lstat(path) for path in paths])

    def _kind(self, path):
        if path in self.targets:
            return FileKind.SYMLINK
        if path in self.devices:
            return FileKind.CHARACTER_DEVICE
        return FileKind.DIRECTORY if self.content[path] is DIRECTORY else FileKind.REGULAR

    async def append(self, path, data):
        self._check("append", path)
        self.content[path] = self.content.get(path, b"") + data

    async def append_durably(self, path, data):
        await self.append(path, data)
        self.synced.append(path)

    async def truncate(self, path, *, size_bytes):
        self.content[path] = self._file(path)[:size_bytes]

    async def rename(self, source, target):
        self.content[target] = self.content.pop(source)

    async def free_bytes(self, path):
        self._check("free_bytes", path)
        return self.room_bytes

    async def remove_file(self, path):
        self._check("remove_file", path)
        self.content.pop(path, None)

    async def remove_tree(self, path):
        self._check("remove_tree", path)
        for each in [each for each in self.content if each == path or path in each.parents]:
            del self.content[each]

    async def unmount_below(self, path):
        self._check("unmount_below", path)

    async def sync_tree(self, path):
        self._check("sync_tree", path)
        self.synced.append(path)

    async def sha256(self, path):
        self._check("sha256", path)
        return hashlib.sha256(self._file(path)).hexdigest()

    async def digest(self, path):
        self._check("digest", path)
        return blake3.blake3(self._file(path)).hexdigest()

    async def digest_parts(self, path, *, part_bytes):
        self._check("digest_parts", path)
        data = self._file(path)
        parts = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
        return FileDigests(
            blake3=blake3.blake3(data).hexdigest(),
            parts=tuple(FilePart(size_bytes=len(part), blake3=blake3.blake3(part).hexdigest()) for part in parts),
        )
