"""Locks on simulated files: they are let go with the process that holds them, however it ends."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sim.world.errors import kernel_error

if TYPE_CHECKING:
    from sim.world.nodes import Regular


class FileLocks:
    """Who holds which file. An owner is any object: one life of a process, told from others by its identity."""

    def __init__(self) -> None:
        self._held: dict[Regular, SimFileLock] = {}

    @property
    def held(self) -> tuple[SimFileLock, ...]:
        """Every lock that somebody holds."""
        return tuple(self._held.values())

    def take(self, node: Regular, owner: object) -> SimFileLock:
        """Take an exclusive lock at once; flock(2). Nobody gets it twice, not even who has it.

        Raises:
            BlockingIOError: somebody holds it.
        """
        if node in self._held:
            raise kernel_error(errno.EAGAIN)
        self._held[node] = lock = SimFileLock(self, node, owner)
        return lock

    def release(self, lock: SimFileLock) -> None:
        """Let one go; one that is not held is fine."""
        if self._held.get(lock.node) is lock:
            del self._held[lock.node]

    def release_all(self, owner: object) -> None:
        """Let go what an owner holds: it ended."""
        for lock in [lock for lock in self._held.values() if lock.owner is owner]:
            self.release(lock)


class SimFileLock:
    """The simulated `FileLock`."""

    def __init__(self, locks: FileLocks, node: Regular, owner: object) -> None:
        self._locks = locks
        self.node = node
        self.owner = owner

    def close(self) -> None:
        """Release it; again does nothing."""
        self._locks.release(self)
