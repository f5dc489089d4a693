"""Errors that a simulated disk gives on purpose."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

from sim.world.errors import kernel_error

if TYPE_CHECKING:
    from collections.abc import Callable


class Operation(enum.StrEnum):
    """What can be asked of a disk, about as finely as the kernel is asked."""

    OPEN = "open"
    READ = "read"
    LIST = "list"
    LOOK = "look"
    CREATE = "create"
    WRITE = "write"
    CUT = "cut"
    CHANGE_MODE = "changeMode"
    SYNC = "sync"
    MAKE_DIRECTORY = "makeDirectory"
    RENAME = "rename"
    REMOVE = "remove"
    REMOVE_DIRECTORY = "removeDirectory"
    LOCK = "lock"


@attrs.define(eq=False)
class Injection:
    """An error to be given.

    Attributes:
        number: its errno.
        when: for which operations on which paths.
        times_max: how often; None is always.
        fired: how often it was given.
    """

    number: int
    when: Callable[[Operation, str], bool]
    times_max: int | None = None
    fired: int = 0

    def consider(self, operation: Operation, path: str) -> None:
        """Give it, if this is the time.

        Raises:
            OSError: the error.
        """
        if (self.times_max is None or self.fired < self.times_max) and self.when(operation, path):
            self.fired += 1
            raise kernel_error(self.number)
