"""The stores of one life of the supervisor, each call through its gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import SnapshotStore, StoredObject, Stores
    from sim.world.calls import Gate


class GatedStores:
    """`Stores` through a gate."""

    def __init__(self, gate: Gate, inner: Stores) -> None:
        self._gate = gate
        self._inner = inner

    def open(self, uri: str) -> GatedStore:
        """The store of a URI; this touches nothing, so that nothing of it can go wrong."""
        return GatedStore(self._gate, self._inner.open(uri), uri)


class GatedStore:
    """`SnapshotStore` through a gate."""

    def __init__(self, gate: Gate, inner: SnapshotStore, uri: str) -> None:
        self._gate = gate
        self._inner = inner
        self._uri = uri.rstrip("/")

    async def put(self, key: str, data: bytes, *, deadline_s: float) -> None:
        """Put a small object."""
        await self._gate.cross("stores", "put", self._of(key), self._inner.put, key, data, deadline_s=deadline_s)

    async def put_part_of(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> None:
        """Put a part of a local file."""
        await self._gate.cross(
            "stores",
            "put_part_of",
            self._of(key),
            self._inner.put_part_of,
            key,
            path,
            offset_bytes=offset_bytes,
            size_bytes=size_bytes,
            deadline_s=deadline_s,
        )

    async def get(self, key: str, *, limit_bytes: int, deadline_s: float) -> bytes:
        """A small object."""
        get = self._inner.get
        return await self._gate.cross(
            "stores", "get", self._of(key), get, key, limit_bytes=limit_bytes, deadline_s=deadline_s
        )

    async def get_into(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Write an object into a local file."""
        return await self._gate.cross(
            "stores",
            "get_into",
            self._of(key),
            self._inner.get_into,
            key,
            path,
            offset_bytes=offset_bytes,
            size_bytes=size_bytes,
            deadline_s=deadline_s,
        )

    async def digest(self, key: str, *, size_bytes: int, deadline_s: float) -> str:
        """The BLAKE3 of an object."""
        digest = self._inner.digest
        return await self._gate.cross(
            "stores", "digest", self._of(key), digest, key, size_bytes=size_bytes, deadline_s=deadline_s
        )

    async def size_of(self, key: str, *, deadline_s: float) -> int | None:
        """The size of an object."""
        return await self._gate.cross(
            "stores", "size_of", self._of(key), self._inner.size_of, key, deadline_s=deadline_s
        )

    async def list(self, prefix: str, *, deadline_s: float) -> tuple[StoredObject, ...]:
        """Every object below these names."""
        return await self._gate.cross(
            "stores", "list", self._of(prefix), self._inner.list, prefix, deadline_s=deadline_s
        )

    async def remove(self, key: str, *, deadline_s: float) -> None:
        """Remove an object."""
        await self._gate.cross("stores", "remove", self._of(key), self._inner.remove, key, deadline_s=deadline_s)

    def _of(self, key: str) -> str:
        return f"{self._uri}/{key}"
