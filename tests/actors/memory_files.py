"""A Files port in memory, for tests that look at what is written and what happens when a file cannot be."""

import errno
import hashlib
import os
from pathlib import Path

import blake3

from actors.ports import FileKind, FileStat, TooLargeError
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

    async def replace_executable(self, path, data):
        await self.make_directory(path.parent)
        await self.replace(path, data)

    async def replace_readable(self, path, data):
        self._check("replace_readable", path)
        await self.make_directory(path.parent)
        await self.replace(path, data)

    async def make_links(self, path, links):
        self._check("make_links", path)
        if path in self.content and self._links(path) != dict(links):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        await self.make_directory(path)
        for name, target in links.items():
            self.content[path / name] = target.encode()
            self.targets[path / name] = target

    def _links(self, path):
        return {each.name: target for each, target in self.targets.items() if each.parent == path}

    def put_device(self, path, major, minor):
        """A character device of somebody else's."""
        self.content[Path(path)], self.devices[Path(path)] = b"", (major, minor)

    async def read_link(self, path):
        self._check("read_link", path)
        return self.targets.get(path)

    async def make_directory(self, path):
        self._check("make_directory", path)
        for directory in (path, *path.parents):
            self.content.setdefault(directory, DIRECTORY)

    async def make_directory_for_boot(self, path):
        await self.make_directory(path)

    async def list_directory(self, path):
        self._check("list_directory", path)
        if path not in self.content:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return tuple(sorted(each.name for each in self.content if each.parent == path and each != path))

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
        return 1 << 40

    async def remove_file(self, path):
        self._check("remove_file", path)
        self.content.pop(path, None)

    async def remove_tree(self, path):
        self._check("remove_tree", path)
        for each in [each for each in self.content if each == path or path in each.parents]:
            del self.content[each]

    async def sync_tree(self, path):
        self._check("sync_tree", path)
        self.synced.append(path)

    async def sha256(self, path):
        self._check("sha256", path)
        return hashlib.sha256(self._file(path)).hexdigest()

    async def digest(self, path):
        self._check("digest", path)
        return blake3.blake3(self._file(path)).hexdigest()
