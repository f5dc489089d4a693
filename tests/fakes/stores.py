"""Stores in memory: their content by URI, failures on demand."""

import errno

import anyio
from blake3 import blake3

from actors.ports import StoredObject, StoreError, TooLargeError
from actors.stores.uris import read_uri


class FakeStores:
    """Every store that is asked for is there.

    Attributes:
        content: URI to bytes.
        failures: operation -> the text of the StoreError that it meets; `heal` by taking it out.
        done: operation and URI of all that was done, in order.
    """

    def __init__(self, ports):
        self.ports, self.content, self.failures, self.done = ports, {}, {}, []

    def open(self, uri):
        return FakeStore(self, str(read_uri(uri)))


class FakeStore:
    """One of them; a local file is one of the FakeFiles."""

    def __init__(self, stores, uri):
        self._stores, self._uri = stores, uri

    async def _begin(self, operation, key):
        await anyio.lowlevel.checkpoint()
        if operation in self._stores.failures:
            raise StoreError(errno.EIO, self._stores.failures[operation])
        self._stores.done.append((operation, f"{self._uri}/{key}"))
        return f"{self._uri}/{key}"

    async def put(self, key, data, *, deadline_s):
        self._stores.content[await self._begin("put", key)] = data

    async def put_part_of(self, key, path, *, offset_bytes, size_bytes, deadline_s):
        data = self._stores.ports.files._file(path)[offset_bytes : offset_bytes + size_bytes]
        if len(data) < size_bytes:
            raise OSError(errno.ENODATA, "shorter", str(path))
        self._stores.content[await self._begin("put_part_of", key)] = data
        return blake3(data).hexdigest()

    async def get(self, key, *, limit_bytes, deadline_s):
        data = self._object(await self._begin("get", key))
        if len(data) > limit_bytes:
            raise TooLargeError(errno.EFBIG, "too large", key)
        return data

    async def get_into(self, key, path, *, offset_bytes, size_bytes, deadline_s):
        data = self._sized(await self._begin("get_into", key), size_bytes)
        content = self._stores.ports.files.content
        before = content.get(path, b"").ljust(offset_bytes, b"\0")
        content[path] = before[:offset_bytes] + data + before[offset_bytes + size_bytes :]
        return blake3(data).hexdigest()

    async def digest(self, key, *, size_bytes, deadline_s):
        return blake3(self._sized(await self._begin("digest", key), size_bytes)).hexdigest()

    async def list(self, prefix, *, deadline_s):
        below = f"{await self._begin('list', prefix)}/" if prefix else f"{self._uri}/"
        return tuple(
            StoredObject(key=uri.removeprefix(f"{self._uri}/"), size_bytes=len(data))
            for uri, data in sorted(self._stores.content.items())
            if uri.startswith(below)
        )

    async def remove(self, key, *, deadline_s):
        self._stores.content.pop(await self._begin("remove", key), None)

    def _object(self, uri):
        if uri not in self._stores.content:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", uri)
        return self._stores.content[uri]

    def _sized(self, uri, size_bytes):
        data = self._object(uri)
        if len(data) != size_bytes:
            raise StoreError(errno.EIO, f"the object has {len(data)} bytes, not {size_bytes}", uri)
        return data
