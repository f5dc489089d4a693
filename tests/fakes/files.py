"""A whole Files port in memory: content, a journal of what was done, failures on demand."""

import errno
import hashlib
import os
from pathlib import Path, PurePath

import anyio

from actors.ports import FileStat
from tests.actors.memory_files import DIRECTORY, MemoryFiles


class FakeFiles(MemoryFiles):
    """Paths to bytes or DIRECTORY. Every operation is a checkpoint, and is noted in `done` when it has succeeded.

    `fail(operation, path, errno)` makes it fail until `heal(operation, path)`. The path may be a pattern.
    """

    def __init__(self, content=()):
        super().__init__(content)
        self.done = []
        self.versions = {}
        self.symlinks = set()

    def heal(self, operation, path):
        del self.failures[operation, Path(path)]

    def names(self, operation):
        """The names of the files that an operation was done with, in order."""
        return [path.name for done, path in self.done if done == operation]

    def below(self, directory):
        """Everything below a directory, by relative path."""
        return {
            str(path.relative_to(directory)): data
            for path, data in sorted(self.content.items())
            if directory in path.parents and data is not DIRECTORY
        }

    def put(self, path, data):
        """What somebody else writes."""
        for parent in path.parents:
            self.content.setdefault(parent, DIRECTORY)
        self._write(path, data)

    def _check(self, operation, path):
        for (failing, pattern), number in self.failures.items():
            if failing == operation and PurePath(path).match(str(pattern)):
                raise OSError(number, os.strerror(number), str(path))

    def _write(self, path, data):
        self.content[path] = data
        self.versions[path] = self.versions.get(path, 0) + 1

    async def _begin(self, operation, path):
        await anyio.lowlevel.checkpoint()
        self._check(operation, path)

    async def read(self, path, *, limit_bytes):
        await self._begin("read", path)
        return await super().read(path, limit_bytes=limit_bytes)

    async def replace(self, path, data):
        await self._begin("replace", path)
        if self.content.get(path.parent) is not DIRECTORY:
            await self.make_directory(path.parent)
        self._write(path, data)
        self.done.append(("replace", path))

    async def make_links(self, path, links):
        await self._begin("make_links", path)
        await super().make_links(path, links)
        self.done.append(("make_links", path))

    async def make_tree(self, path, tree):
        await self._begin("make_tree", path)
        await super().make_tree(path, tree)
        self.done.append(("make_tree", path))

    async def append(self, path, data):
        await self._begin("append", path)
        self._write(path, self.content.get(path, b"") + data)
        self.done.append(("append", path))

    async def append_durably(self, path, data):
        await self._begin("append_durably", path)
        self._write(path, self.content.get(path, b"") + data)
        self.done.append(("append_durably", path))

    async def truncate(self, path, *, size_bytes):
        await self._begin("truncate", path)
        self._write(path, self._file(path)[:size_bytes])

    async def list_directory(self, path):
        await self._begin("list_directory", path)
        if self.content.get(path, DIRECTORY) is not DIRECTORY:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return await super().list_directory(path)

    async def stat(self, path):
        await self._begin("stat", path)
        return None if path in self.symlinks else await self.lstat(path)

    async def lstat(self, path):
        data = self.content.get(path)
        self._check("lstat", path)
        if data is None:
            return None
        return FileStat(
            kind=self._kind(path),
            size_bytes=0 if data is DIRECTORY else len(data),
            mode=self.modes.get(path, 0o600),
            inode=hash(path),
            mtime_ns=self.versions.get(path, 0),
            device=self.devices.get(path),
        )

    async def rename(self, source, target):
        await self._begin("rename", source)
        self._file(source)
        self.content[target] = self.content.pop(source)
        self.done.append(("rename", source))

    async def remove_file(self, path):
        await self._begin("remove_file", path)
        await super().remove_file(path)
        self.done.append(("remove_file", path))

    async def remove_tree(self, path):
        await self._begin("remove_tree", path)
        await super().remove_tree(path)
        self.done.append(("remove_tree", path))

    async def sha256(self, path):
        return hashlib.sha256(self._file(path)).hexdigest()
