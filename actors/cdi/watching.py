"""Registries that notice changes: by the stamps of files at each query, or told by a watcher of the directories.

Either way nothing is read when nothing has changed, and a directory that does not exist yet counts as an empty one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .ports import SpecFiles
from .scanning import DEFAULT_DIRECTORIES, LiveRegistry, is_spec_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Sequence
    from contextlib import AbstractAsyncContextManager

    from .registry import Registry


class StampedSpecFiles(SpecFiles, Protocol):
    """Spec directories that can be asked whether they are still the same. `actors.cdi.host.HostFiles` is one."""

    def stamp(self, directory: str) -> Hashable:
        """What is another value when a spec file was made, changed, exchanged, renamed or removed; reads no file."""
        ...


class SpecWatch(Protocol):
    """A watcher of directories: Greenroom's port fits as it is."""

    def changes(self, directory: Path) -> AbstractAsyncContextManager[AsyncIterator[frozenset[str]]]:
        """Names of direct entries that changed, in batches; an empty set when everything may have."""
        ...


class StampedRegistry:
    """The registry of some directories as they are at each query: for programs without an event loop.

    A query costs a look at each spec file's status, and a scan of what changed only when something did.
    """

    def __init__(self, files: StampedSpecFiles, directories: Sequence[str] = DEFAULT_DIRECTORIES) -> None:
        self._files = files
        self._live = LiveRegistry(files, directories)
        self._stamps: tuple[Hashable, ...] = ()

    def current(self) -> Registry:
        """The registry; scanned anew when something changed."""
        # Taken before the scan: what changes while it runs is met by the next query.
        stamps = tuple(self._files.stamp(directory) for directory in self._live.directories)
        if stamps != self._stamps:
            self._live.mark_stale()
        registry = self._live.current()
        self._stamps = stamps
        return registry


async def follow(live: LiveRegistry, watch: SpecWatch, directory: str) -> None:
    """Make a registry stale whenever a spec file of one directory changes, until cancelled.

    One such task for each of `live.directories`.
    """
    async with watch.changes(Path(directory)) as changes:
        live.mark_stale()  # what happened before anybody watched
        async for names in changes:
            if not names or any(map(is_spec_name, names)):
                live.mark_stale()
