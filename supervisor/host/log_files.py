"""The real `LogFiles`."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from supervisor.host import cutting, reading
from supervisor.host.background import open_background
from supervisor.host.beneath import Beneath
from supervisor.host.gathering import Gathering
from supervisor.host.inotify import Inotify, open_inotify
from supervisor.log_files import until_beat_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from actors.ports import FileStat
    from supervisor.log_files import Cut

_THREADS_MAX: Final = 2
"""Of their own, so that a slow disk under a busy log keeps no step of any actor waiting."""
_LOOK_AGAIN_S: Final = 1.0
"""Where nothing can be watched it is looked at that often, all of it at once; only directories of live actors are."""


class HostLogFiles:
    """The real `LogFiles`. Made by `open_log_files`."""

    def __init__(self, beneath: Beneath, inotify: Inotify | None, looks: Gathering) -> None:
        self._beneath, self._inotify, self._looks = beneath, inotify, looks
        self._threads = anyio.CapacityLimiter(_THREADS_MAX)

    def size_bytes(self, path: Path) -> int:
        """How large a file is now, at once; 0 when it is not there or cannot be looked at."""
        with suppress(OSError):
            return _size_bytes(path)
        return 0

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        return await self._looks.run(partial(reading.look_at, path, follow=False))

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read at most `limit_bytes` of a regular file from an offset; empty at or after its end."""
        return await self._looks.run(partial(reading.read_from, path, offset_bytes, limit_bytes))

    async def changed(self, directory: Path, sizes: Mapping[str, int]) -> dict[str, int]:
        """Wait until a file of a directory has another size than this; one that is not there has none, 0.

        Raises:
            OSError: one of them cannot be looked at.
        """
        look = partial(_sizes, directory, tuple(sizes))
        while True:
            # Before anything is armed: to take a watch away again wakes us as well.
            if (found := await self._looks.run(look)) != sizes:
                return found
            with self._watched(directory) as written:
                if written is None:
                    await anyio.sleep(until_beat_s(anyio.current_time(), every_s=_LOOK_AGAIN_S))
                    continue
                # Once more: what was written until it was armed is told by nobody.
                if (found := await self._looks.run(look)) != sizes:
                    return found
                await written.wait()

    async def cut(self, path: Path, *, into: Path, keep_bytes: int) -> Cut:
        """Take nearly all that a file holds out of it, and replace another one by the newest part of that.

        Raises:
            OSError: it could not be cut; nothing of it is gone, but the other file may be.
        """
        return await to_thread.run_sync(cutting.cut, self._beneath, path, into, keep_bytes, limiter=self._threads)

    @contextmanager
    def _watched(self, directory: Path) -> Iterator[anyio.Event | None]:
        """An event that is set at the next write; None where nobody tells of it."""
        with ExitStack() as armed:
            written = None
            if self._inotify is not None:
                with suppress(OSError):  # the directory is not there yet, or there is no watch left
                    written = armed.enter_context(self._inotify.armed(directory))
            yield written


@asynccontextmanager
async def open_log_files(*, roots: Sequence[Path]) -> AsyncIterator[HostLogFiles]:
    """The containers' logs below these directories."""
    async with open_inotify() as inotify, open_background() as tasks:
        looks = Gathering()
        tasks.start_soon(looks.serve, name="looks at logs")
        if inotify is not None:
            tasks.start_soon(inotify.tell, name="inotify")
        yield HostLogFiles(Beneath(roots), inotify, looks)


def _sizes(directory: Path, names: Sequence[str]) -> dict[str, int]:
    return {name: _size_bytes(directory / name) for name in names}


def _size_bytes(path: Path) -> int:
    found = reading.look_at(path, follow=False)
    return 0 if found is None else found.size_bytes
