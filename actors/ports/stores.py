"""The port for what lies outside the worker and outlives it: objects by key, in a store that a URI names.

A store knows nothing of snapshots; how one lies in it is for `actors.stores` to say. An object is replaced as a whole
or not at all, as every object store does it; there are no directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from pathlib import Path


OBJECTS_MAX: Final = 100_000
"""Objects that a listing may have."""


@attrs.frozen(kw_only=True)
class StoredObject:
    """One object: its key below the store's URI, and its size."""

    key: str
    size_bytes: int


class StoreError(OSError):
    """The store did not do it: unreachable, refused, cut off. Whether it can be tried again only time tells.

    It may have done it all the same, and only the answer was lost. What it says has no secrets in it.
    """


class SnapshotStore(Protocol):
    """One store. Keys are relative to its URI: plain names joined by `/`. Every call is bounded by `deadline_s`.

    Every call may raise StoreError, and FileNotFoundError where an object must be there. Who is cancelled is let go at
    once; nothing is written into a local file after that, but an object may still come to be.
    """

    async def put(self, key: str, data: bytes, *, deadline_s: float) -> None:
        """Put a small object, replacing one that is there. It lasts once this has returned."""
        ...

    async def put_part_of(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Put a part of a local file as an object, without holding it in memory. It lasts once this has returned.

        Returns: the BLAKE3 of what was sent, 64 hex digits.

        Raises:
            OSError: the file cannot be read, or is shorter; there is no object then.
        """
        ...

    async def get(self, key: str, *, limit_bytes: int, deadline_s: float) -> bytes:
        """A small object.

        Raises:
            TooLargeError: larger than the limit.
        """
        ...

    async def get_into(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Write an object of just this size into a local file at an offset; the file is made when absent.

        Returns: the BLAKE3 of what was written, 64 hex digits. It is not yet durable.

        Raises:
            OSError: the file cannot be written.
            StoreError: also when the object has another size.
        """
        ...

    async def digest(self, key: str, *, size_bytes: int, deadline_s: float) -> str:
        """The BLAKE3 of an object of just this size, 64 hex digits, without holding it in memory.

        Raises:
            StoreError: also when the object has another size.
        """
        ...

    async def list(self, prefix: str, *, deadline_s: float) -> tuple[StoredObject, ...]:
        """Every object below these names, by key; all of them for an empty prefix.

        Raises:
            StoreError: also for more than OBJECTS_MAX.
        """
        ...

    async def remove(self, key: str, *, deadline_s: float) -> None:
        """Remove an object; one that is absent is no error."""
        ...


class Stores(Protocol):
    """Every store that a URI can name."""

    def open(self, uri: str) -> SnapshotStore:
        """The store of a `s3: gs: az: file: memory:` URI, below which its keys lie. Touches nothing yet.

        Raises:
            ValueError: no URI of a store.
        """
        ...
