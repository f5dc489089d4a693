"""Changes of simulated directories, told by the disk the moment they happen."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import lowlevel

from actors.ports import PROMPT_S
from sim.world import lookup
from supervisor.inbox import ChangeInbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sim.world.disk import SimDisk
    from sim.world.nodes import Directory


class SimWatch:
    """The simulated `Watch`. It never sleeps; what comes before somebody looks comes together."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    @asynccontextmanager
    async def changes(
        self,
        directory: Path,
        *,
        within_s: float = PROMPT_S,  # noqa: ARG002 - the disk tells it the moment it happens
    ) -> AsyncIterator[AsyncIterator[frozenset[str]]]:
        """Names of direct entries that changed, in batches; not recursive.

        An empty set means: look at everything. A directory that is absent at first is waited for.
        """
        await lowlevel.checkpoint()
        observer = _Observer(self._disk, directory)
        try:
            yield observer.batches
        finally:
            observer.close()


class _Observer:
    """Watches one path, through whatever stands there."""

    def __init__(self, disk: SimDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.batches = ChangeInbox()
        self._watched = self._look()
        self._listen()
        disk.layout_listeners.append(self._look_again)

    def close(self) -> None:
        self._listen_no_more()
        # A power failure has cleared them.
        if self._look_again in self._disk.layout_listeners:
            self._disk.layout_listeners.remove(self._look_again)

    def _look_again(self) -> None:
        """Whether the path names another directory than before: it, one above it or a symlink was exchanged."""
        found = self._look()
        if found is not self._watched:
            self._listen_no_more()
            self._watched = found
            self._listen()
            self.batches.put(())

    def _look(self) -> Directory | None:
        try:
            return lookup.find_directory(self._disk.top, self._path)
        except OSError:
            return None

    def _listen(self) -> None:
        if self._watched is not None:
            self._watched.listeners.append(self._tell)

    def _listen_no_more(self) -> None:
        if self._watched is not None and self._tell in self._watched.listeners:
            self._watched.listeners.remove(self._tell)

    def _tell(self, name: str | None) -> None:
        self.batches.put(() if name is None else (name,))
