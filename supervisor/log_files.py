"""What keeping the containers' logs needs of the world, beyond the Files port: to be told of writes, and to cut a head.

It stands apart from `Ports`: a worker runs without it, only that nobody bounds or tells then what containers write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@attrs.frozen(kw_only=True)
class Cut:
    """What became of the beginning of a file.

    Attributes:
        cut_bytes: how much of it was taken out of the file.
        kept_bytes: how much of that, the newest, the other file has now.
        may_have_lost: whether something that was written at that very moment may be in neither; where the file system
            can take out a beginning as such, nothing is.
    """

    cut_bytes: int
    kept_bytes: int
    may_have_lost: bool = False


class LogFiles(Protocol):
    """Files that containers hold open to append."""

    def size_bytes(self, path: Path) -> int:
        """How large a file is now, at once; 0 when it is not there or cannot be looked at."""
        ...

    async def changed(self, directory: Path, sizes: Mapping[str, int]) -> None:
        """Wait until a file of a directory has another size than this; one that is not there has none, 0."""
        ...

    async def cut(self, path: Path, *, into: Path, keep_bytes: int) -> Cut:
        """Take all, or nearly all, that a file holds out of it, and replace another one by the newest part of that.

        Who holds the file open to append goes on, and notices nothing. When there is no room for the other file, it is
        removed instead.

        Raises:
            OSError: it could not be cut; nothing of it is gone.
        """
        ...


class LineOutput(Protocol):
    """Where the containers' lines go: our stdout."""

    async def write(self, lines: bytes) -> None:
        """Write whole lines, however long that takes; cancelled, it may have written a part.

        Raises:
            OSError: nobody will ever take them.
        """
        ...
