"""What containers wrote: each one's log is two files, of which the older holds the newest part of what was cut off.

An offset counts what the container wrote since the older file's beginning as it was when the worker first looked: it
stays true over every cut, and whoever asks for what is gone is told from where on there is something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import attrs

from supervisor.log_files import Cut

if TYPE_CHECKING:
    from pathlib import Path

    from actors.layout import StateDir
    from supervisor.log_files import LogFiles, LogReads

FILE_BYTES_MAX: Final = 16 << 20
"""A log that is larger is cut. With what was cut off before, a container has about twice this on disk."""
OLDER: Final = ".1"
"""What the name of the older file ends with."""


def log_name(container: str) -> str:
    """The name of a log's younger file, as `ActorDir.log` has it."""
    return f"{container}.log"


@attrs.frozen(kw_only=True)
class Piece:
    """A piece of a log.

    Attributes:
        data: the bytes.
        offset_bytes: where they begin; more than was asked for when that is gone.
        end_bytes: where the log ends now.
    """

    data: bytes
    offset_bytes: int
    end_bytes: int

    @property
    def next_bytes(self) -> int:
        """Where the next piece begins."""
        return self.offset_bytes + len(self.data)


@attrs.define
class _Log:
    """One log. `begin_bytes` is the offset of the younger file's beginning, `kept_bytes` the size of the older one."""

    path: Path
    begin_bytes: int = 0
    kept_bytes: int = 0
    is_known: bool = False
    lock: anyio.Lock = attrs.field(factory=anyio.Lock)

    @property
    def older(self) -> Path:
        return self.path.with_name(self.path.name + OLDER)


@attrs.define
class ContainerLogs:
    """The logs of the containers of one worker."""

    files: LogReads
    state_dir: StateDir
    file_bytes_max: int = FILE_BYTES_MAX
    _logs: dict[tuple[str, str], _Log] = attrs.field(factory=dict, init=False)

    async def read(self, uid: str, container: str, *, offset_bytes: int, limit_bytes: int) -> Piece:
        """Read a piece from an offset, or from where there is something; empty at the end.

        Raises:
            OSError: it cannot be read.
        """
        log = await self._known(uid, container)
        async with log.lock:
            oldest_bytes = log.begin_bytes - log.kept_bytes
            at = start = max(offset_bytes, oldest_bytes)
            data = b""
            end_bytes: int | None = None
            if at < log.begin_bytes:
                limit = min(limit_bytes, log.begin_bytes - at)
                data = await self._read(log.older, at - oldest_bytes, limit)
                # What somebody has made shorter is told as what there is.
                at = log.begin_bytes if len(data) < limit else at + len(data)
            limit = limit_bytes - len(data)
            if limit > 0 and at >= log.begin_bytes:
                younger = await self._read(log.path, at - log.begin_bytes, limit)
                data += younger
                if 0 < len(younger) < limit:  # then that is all
                    end_bytes = at + len(younger)
            if end_bytes is None:
                end_bytes = log.begin_bytes + await self._size(log.path)
            return Piece(data=data, offset_bytes=min(start, end_bytes), end_bytes=end_bytes)

    async def offset_of(self, uid: str, container: str, *, size_bytes: int) -> int:
        """The offset where the younger file ended when it had this size, if it was not cut since.

        Raises:
            OSError: it cannot be looked at.
        """
        return (await self._known(uid, container)).begin_bytes + size_bytes

    async def bound(self, uid: str, container: str, log_files: LogFiles) -> Cut | None:
        """Cut a log that has become too large; None when it has not.

        Raises:
            OSError: it is too large, and cannot be cut.
        """
        log = await self._known(uid, container)
        async with log.lock:
            if await self._size(log.path) <= self.file_bytes_max:
                return None
            # Whoever is cancelled meanwhile must still know what was cut: else every offset would be wrong.
            with anyio.CancelScope(shield=True):
                try:
                    cut = await log_files.cut(log.path, into=log.older, keep_bytes=self.file_bytes_max)
                except OSError:
                    log.kept_bytes = await self._size(log.older)
                    raise
                log.begin_bytes += cut.cut_bytes
                log.kept_bytes = cut.kept_bytes if cut.cut_bytes else log.kept_bytes
            return cut

    async def size(self, uid: str, container: str) -> int:
        """How large the younger file of a log is.

        Raises:
            OSError: it cannot be looked at.
        """
        return await self._size(self.state_dir.actor(uid).log(container))

    def forget(self, uid: str) -> None:
        """The actor is not remembered any more; its files stay."""
        for key in [key for key in self._logs if key[0] == uid]:
            del self._logs[key]

    async def _known(self, uid: str, container: str) -> _Log:
        log = self._logs.setdefault((uid, container), _Log(self.state_dir.actor(uid).log(container)))
        if not log.is_known:
            async with log.lock:
                if not log.is_known:
                    log.kept_bytes = log.begin_bytes = await self._size(log.older)
                    log.is_known = True
        return log

    async def _size(self, path: Path) -> int:
        found = await self.files.lstat(path)
        return 0 if found is None else found.size_bytes

    async def _read(self, path: Path, offset_bytes: int, limit_bytes: int) -> bytes:
        try:
            return await self.files.read_from(path, offset_bytes=offset_bytes, limit_bytes=limit_bytes)
        except FileNotFoundError:
            return b""
