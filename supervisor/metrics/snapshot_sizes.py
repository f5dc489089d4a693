"""How much room the actors' last good snapshots take here, as their manifests say: each is read once, at a scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.manifest import read_manifest
from actors.snapshots import uri_of
from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from actors.layout import StateDir
    from actors.ports import Files
    from supervisor.life import Life

READS_MAX: Final = 32
"""Manifests that are read at one scrape: after a restart with a thousand actors the rest has time."""


class SnapshotSizes:
    """Knows them.

    Args:
        files: reads manifests.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[Path, int] = {}
        self._failed: dict[Path, None] = {}  # in the order in which they were tried last

    async def known(self, state_dir: StateDir, lives: Iterable[Life]) -> tuple[int, ...]:
        """The size of each, in bytes; those whose manifest was not read yet, or cannot be, are left out.

        One that could not be read is tried again after all that were not tried, so that it costs no other its turn.
        """
        here = [directory for life in lives if (directory := _directory(state_dir, life)) is not None]
        places = set(here)
        self._failed = {directory: None for directory in self._failed if directory in places}
        new = [each for each in here if each not in self._known and each not in self._failed]
        for directory in [*new, *self._failed][:READS_MAX]:
            await self._read(directory)
        self._known = {directory: self._known[directory] for directory in here if directory in self._known}
        return tuple(self._known.values())

    async def _read(self, directory: Path) -> None:
        # Failed until it is read: one that takes too long, and is cancelled, has had its turn as well.
        self._failed.pop(directory, None)
        self._failed[directory] = None
        try:
            manifest = await read_manifest(self._files, directory)
        except (OSError, ProblemError):
            return
        self._failed.pop(directory, None)
        self._known[directory] = manifest.size_bytes


def _directory(state_dir: StateDir, life: Life) -> Path | None:
    """Where an actor's last good snapshot is, if that is here and its own."""
    snapshot = life.actor.last_good
    if snapshot is None:
        return None
    directory = state_dir.actor(life.uid).snapshot(snapshot.id)
    return directory if snapshot.uri == uri_of(directory) else None
