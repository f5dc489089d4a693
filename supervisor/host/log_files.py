"""The real `LogFiles`."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from supervisor.host import cutting
from supervisor.host.background import open_background
from supervisor.host.beneath import Beneath
from supervisor.host.inotify import Inotify, open_inotify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from supervisor.log_files import Cut

_THREADS_MAX: Final = 2
"""Of their own, so that a slow disk under a busy log keeps no step of any actor waiting."""
_LOOK_AGAIN_S: Final = 1.0
"""Where nothing can be watched, it is looked at that often; only directories of actors that live are."""


class HostLogFiles:
    """The real `LogFiles`. Made by `open_log_files`."""

    def __init__(self, beneath: Beneath, inotify: Inotify | None) -> None:
        self._beneath, self._inotify = beneath, inotify
        self._threads = anyio.CapacityLimiter(_THREADS_MAX)

    def size_bytes(self, path: Path) -> int:
        """How large a file is now, at once; 0 when it is not there or cannot be looked at."""
        return _size_bytes(path)

    async def changed(self, directory: Path, sizes: Mapping[str, int]) -> None:
        """Wait until a file of a directory has another size than this; one that is not there has none, 0."""
        while True:
            if self._inotify is None:
                await self._poll(directory, sizes)
                return
            try:
                # Armed first and looked at then: what is written in between is seen by the one or the other.
                with self._inotify.armed(directory) as written:
                    if await self._differ(directory, sizes):
                        return
                    await written.wait()
            except OSError:  # the directory is not there yet, or there is no watch left
                await self._poll(directory, sizes)
                return

    async def cut(self, path: Path, *, into: Path, keep_bytes: int) -> Cut:
        """Take nearly all that a file holds out of it, and replace another one by the newest part of that.

        Raises:
            OSError: it could not be cut; nothing of it is gone.
        """
        return await to_thread.run_sync(cutting.cut, self._beneath, path, into, keep_bytes, limiter=self._threads)

    async def _poll(self, directory: Path, sizes: Mapping[str, int]) -> None:
        while not await self._differ(directory, sizes):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(_LOOK_AGAIN_S)

    async def _differ(self, directory: Path, sizes: Mapping[str, int]) -> bool:
        return await to_thread.run_sync(_differ, directory, sizes, limiter=self._threads)


@asynccontextmanager
async def open_log_files(*, roots: Sequence[Path]) -> AsyncIterator[HostLogFiles]:
    """The containers' logs below these directories."""
    async with open_inotify() as inotify, open_background() as tasks:
        if inotify is not None:
            tasks.start_soon(inotify.tell, name="inotify")
        yield HostLogFiles(Beneath(roots), inotify)


def _differ(directory: Path, sizes: Mapping[str, int]) -> bool:
    return any(_size_bytes(directory / name) != size_bytes for name, size_bytes in sizes.items())


def _size_bytes(path: Path) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0
