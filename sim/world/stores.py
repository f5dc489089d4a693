"""Every snapshot store that there is in a simulated world, and the simulated `Stores` of one life of the supervisor.

What lies in a store outlives everything else: it is on no machine. Its faults come through the gate: down, slow,
hanging, and between the parts of a call `put: sent` (all of it was sent, nothing is there yet) and `put: stored` (it is
there, and the answer can still be lost).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from anyio import lowlevel
from blake3 import blake3

from actors.ports import OBJECTS_MAX, StoredObject, StoreError, TooLargeError
from actors.stores.uris import names_of, read_uri
from sim.world.writing import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from actors.stores.uris import StoreUri
    from sim.world.beneath import SimBeneath

At: TypeAlias = "Callable[[str], Awaitable[None]]"
Carry: TypeAlias = "Callable[[str, Path | None, int], Awaitable[None]]"
"""Waits as long as a request takes: its key, the local file that it is about, if any, and how many bytes are sent."""

_GONE: Final = "there is no such object"


class SimObjects:
    """All objects of all stores by URI. A test looks and spoils here."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def cut(self, uri: str, size_bytes: int) -> None:
        """Let an object have lost its end."""
        self.content[uri] = self.content[uri][:size_bytes]

    def flip(self, uri: str, *, at_bytes: int = 0) -> None:
        """Let one bit of an object be another."""
        data = bytearray(self.content[uri])
        data[at_bytes] ^= 1
        self.content[uri] = bytes(data)


class SimStores:
    """The simulated `Stores`: each call happens as a whole, and takes no time but what `carry` waits for.

    Args:
        objects: what everybody shares.
        beneath: the machine's disk, and the directories below which alone a local file is written.
        at: is awaited between the parts of a call that puts something, and may raise there.
        carry: what a request waits for; it may raise a StoreError.
        let_others_run: one turn of the event loop.
    """

    def __init__(
        self,
        objects: SimObjects,
        beneath: SimBeneath,
        *,
        at: At | None = None,
        carry: Carry | None = None,
        let_others_run: Callable[[], Awaitable[None]] = lowlevel.checkpoint,
    ) -> None:
        self.objects = objects
        self.beneath = beneath
        self.at = at
        self._carry = carry
        self._one_turn = let_others_run

    async def begin(self, key: str, deadline_s: float, *, path: Path | None = None, size_bytes: int = 0) -> None:
        """What every request begins with.

        Raises:
            StoreError: it takes too long.
        """
        await self._one_turn()
        if self._carry is not None:
            with anyio.move_on_after(deadline_s) as patience:
                await self._carry(key, path, size_bytes)
            if patience.cancelled_caught:
                raise StoreError(errno.ETIMEDOUT, f"no answer within {deadline_s:g} s", key)

    def open(self, uri: str) -> SimStore:
        """The store of a URI.

        Raises:
            ValueError: no URI of a store.
        """
        return SimStore(self, read_uri(uri))


class SimStore:
    """One simulated store."""

    def __init__(self, stores: SimStores, uri: StoreUri) -> None:
        self._stores = stores
        self._uri = uri
        self._content = stores.objects.content

    async def put(self, key: str, data: bytes, *, deadline_s: float) -> None:
        """Put a small object."""
        await self._stores.begin(key, deadline_s)
        await self._store(key, data)

    async def put_part_of(
        self,
        key: str,
        path: Path,
        *,
        offset_bytes: int,
        size_bytes: int,
        deadline_s: float,
    ) -> str:
        """Put a part of a local file as an object; returns the BLAKE3 of what was sent.

        Raises:
            OSError: the file cannot be read, or is shorter.
        """
        await self._stores.begin(key, deadline_s, path=path, size_bytes=size_bytes)
        disk = self._stores.beneath.disk
        data = disk.read(disk.find_regular(path), offset_bytes=offset_bytes, limit_bytes=size_bytes)
        if len(data) < size_bytes:
            raise OSError(errno.ENODATA, f"shorter than {offset_bytes + size_bytes} bytes", str(path))
        await self._store(key, data)
        return blake3(data).hexdigest()

    async def get(self, key: str, *, limit_bytes: int, deadline_s: float) -> bytes:
        """A small object.

        Raises:
            TooLargeError: larger than the limit.
        """
        await self._stores.begin(key, deadline_s)
        data = self._object(key)
        if len(data) > limit_bytes:
            raise TooLargeError(errno.EFBIG, f"larger than {limit_bytes} bytes", self._name(key))
        return data

    async def get_into(
        self,
        key: str,
        path: Path,
        *,
        offset_bytes: int,
        size_bytes: int,
        deadline_s: float,
    ) -> str:
        """Write an object of just this size into a local file at an offset."""
        await self._stores.begin(key, deadline_s, path=path, size_bytes=size_bytes)
        data = self._sized(key, size_bytes)
        _write_at(self._stores.beneath, path, offset_bytes, data)
        return blake3(data).hexdigest()

    async def digest(self, key: str, *, size_bytes: int, deadline_s: float) -> str:
        """The BLAKE3 of an object of just this size."""
        await self._stores.begin(key, deadline_s)
        return blake3(self._sized(key, size_bytes)).hexdigest()

    async def list(self, prefix: str, *, deadline_s: float) -> tuple[StoredObject, ...]:
        """Every object below these names, by key.

        Raises:
            StoreError: there are too many.
        """
        await self._stores.begin(prefix, deadline_s)
        top = f"{self._uri}/"
        below = f"{self._name(prefix)}/" if prefix else top
        found = [
            StoredObject(key=name.removeprefix(top), size_bytes=len(data))
            for name, data in self._content.items()
            if name.startswith(below)
        ]
        found.sort(key=lambda each: each.key)
        if len(found) > OBJECTS_MAX:
            raise StoreError(errno.EOVERFLOW, f"more than {OBJECTS_MAX} objects", below)
        return tuple(found)

    async def remove(self, key: str, *, deadline_s: float) -> None:
        """Remove an object; one that is absent is no error."""
        await self._stores.begin(key, deadline_s)
        self._content.pop(self._name(key), None)
        await self._tell("remove: removed")

    async def _store(self, key: str, data: bytes) -> None:
        await self._tell("put: sent")
        self._content[self._name(key)] = data
        await self._tell("put: stored")

    async def _tell(self, point: str) -> None:
        if self._stores.at is not None:
            await self._stores.at(point)

    def _object(self, key: str) -> bytes:
        try:
            return self._content[self._name(key)]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, _GONE, self._name(key)) from None

    def _sized(self, key: str, size_bytes: int) -> bytes:
        data = self._object(key)
        if len(data) != size_bytes:
            message = f"the object has {len(data)} bytes, not {size_bytes}"
            raise StoreError(errno.EIO, message, self._name(key))
        return data

    def _name(self, key: str) -> str:
        return str(self._uri.below(*names_of(key)))


def _write_at(beneath: SimBeneath, path: Path, offset_bytes: int, data: bytes) -> None:
    disk = beneath.disk
    directory, name = beneath.parent(path)
    try:
        node = disk.open_to_write(directory, name)
    except FileNotFoundError:
        node = disk.create(directory, name, FILE_MODE)
    disk.write(node, offset_bytes, data)
