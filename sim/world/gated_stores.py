"""The stores of one life of the supervisor, each call through its gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from actors.ports import SnapshotStore, StoredObject, Stores
    from sim.world.calls import Gate

_Result = TypeVar("_Result")


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
        await self._cross("put", self._inner.put, key, data, deadline_s=deadline_s)

    async def put_part_of(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Put a part of a local file."""
        part = {"offset_bytes": offset_bytes, "size_bytes": size_bytes}
        return await self._cross("put_part_of", self._inner.put_part_of, key, path, **part, deadline_s=deadline_s)

    async def get(self, key: str, *, limit_bytes: int, deadline_s: float) -> bytes:
        """A small object."""
        return await self._cross("get", self._inner.get, key, limit_bytes=limit_bytes, deadline_s=deadline_s)

    async def get_into(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Write an object into a local file."""
        part = {"offset_bytes": offset_bytes, "size_bytes": size_bytes}
        return await self._cross("get_into", self._inner.get_into, key, path, **part, deadline_s=deadline_s)

    async def digest(self, key: str, *, size_bytes: int, deadline_s: float) -> str:
        """The BLAKE3 of an object."""
        return await self._cross("digest", self._inner.digest, key, size_bytes=size_bytes, deadline_s=deadline_s)

    async def list(self, prefix: str, *, deadline_s: float) -> tuple[StoredObject, ...]:
        """Every object below these names."""
        return await self._cross("list", self._inner.list, prefix, deadline_s=deadline_s)

    async def remove(self, key: str, *, deadline_s: float) -> None:
        """Remove an object."""
        await self._cross("remove", self._inner.remove, key, deadline_s=deadline_s)

    async def _cross(
        self, method: str, act: Callable[..., Awaitable[_Result]], key: str, *args: Any, **named: Any
    ) -> _Result:
        return await self._gate.cross("stores", method, f"{self._uri}/{key}", act, key, *args, **named)
