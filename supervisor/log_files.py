"""What keeping the containers' logs needs of the world, beyond the Files port: to be told of writes, and to cut a head.

It stands apart from `Ports`: a worker runs without it, only that nobody bounds or tells then what containers write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actors.ports import FileStat

PACE_S: Final = 0.25
"""How often logs are looked at that are written all the time, and how long a line waits at most until it is told."""


def rest_s(now_s: float) -> float:
    """How long is rested after a look at logs: until a beat that is the same for all of them.

    So a worker whose actors all write is woken as often as if one did, and for all of them together.
    """
    return until_beat_s(now_s, every_s=PACE_S)


def until_beat_s(now_s: float, *, every_s: float) -> float:
    """How long it is until the next of the beats that are so far from each other."""
    return every_s - now_s % every_s


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


class LogReads(Protocol):
    """What of the Files port is asked of logs."""

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        ...

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read at most `limit_bytes` of a regular file from an offset; empty at or after its end."""
        ...


class LogFiles(LogReads, Protocol):
    """Files that containers hold open to append. To ask for many of them at once costs as little as for one."""

    def size_bytes(self, path: Path) -> int:
        """How large a file is now, at once; 0 when it is not there or cannot be looked at."""
        ...

    async def changed(self, directory: Path, sizes: Mapping[str, int]) -> dict[str, int]:
        """Wait until a file of a directory has another size than this; one that is not there has none, 0.

        Returns:
            Their sizes then.

        Raises:
            OSError: one of them cannot be looked at.
        """
        ...

    async def cut(self, path: Path, *, into: Path, keep_bytes: int) -> Cut:
        """Take all, or nearly all, that a file holds out of it, and replace another one by the newest part of that.

        Who holds the file open to append goes on, and notices nothing. When there is no room for the other file, it is
        removed instead.

        Raises:
            OSError: it could not be cut; nothing of it is gone, but the other file may be.
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
