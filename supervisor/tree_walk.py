"""The bookkeeping of walks through trees: where one is, what stays, what is tried once more. It touches no file.

The real port (supervisor/host/trees.py) and the simulated one (sim/world/walking.py) walk by these rules.
"""

from __future__ import annotations

import errno
import posixpath
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from pathlib import Path

REPEATS_MAX: Final = 4
"""How often a directory is emptied into which somebody still puts files."""

_NAMES_SHOWN_MAX: Final = 20


@attrs.define(kw_only=True)
class Level:
    """A directory on the way from the top to where the walk is.

    Attributes:
        pending: the names in it that have yet to be met.
        repeats: how often a directory in it had to be entered once more.
        is_stuck: something in it stays, so that it stays too.
    """

    name: str
    pending: list[str] = attrs.field(factory=list)
    repeats: Counter[str] = attrs.field(factory=Counter)
    is_stuck: bool = False


LevelT = TypeVar("LevelT", bound=Level)


class Walk(Generic[LevelT]):
    """Where a walk through a tree is.

    Args:
        path: of the top, for messages.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.levels: list[LevelT] = []

    def located(self, error: OSError, name: str) -> OSError:
        """The error with the whole path in it; a very long one is cut in the middle."""
        names = [level.name for level in self.levels[1:]] + ([name] if self.levels else [])
        if len(names) > _NAMES_SHOWN_MAX:
            names = [*names[:_NAMES_SHOWN_MAX], "…", name]
        error.filename = posixpath.join(self.path, *names)
        return error

    def moved(self) -> OSError:
        """The error of a directory whose `..` is not the one that it was entered from."""
        return self.located(OSError(errno.ESTALE, "a directory was moved while its tree was walked"), "..")


class Remains:
    """What a removal could not remove. The first failure is the one that is told; the rest is removed all the same."""

    def __init__(self, walk: Walk[Any]) -> None:
        self._walk = walk
        self.first: OSError | None = None

    def keep(self, error: OSError, name: str) -> None:
        """Something in the directory where the walk is now stays."""
        self.first = self.first or self._walk.located(error, name)
        self._stick()

    def keep_directory(self, error: OSError, level: Level) -> None:
        """A directory that was left could not be removed from the one where the walk is now."""
        if level.is_stuck:
            self._stick()  # the error of what is in it has been kept
        elif error.errno == errno.ENOTEMPTY:
            self._repeat(error, level.name)
        else:
            self.keep(error, level.name)

    def _repeat(self, error: OSError, name: str) -> None:
        """Somebody puts files there while we empty it."""
        if not self._walk.levels:
            return  # the top: who walks counts
        above = self._walk.levels[-1]
        above.repeats[name] += 1
        if above.repeats[name] < REPEATS_MAX:
            above.pending.append(name)
        else:
            self.keep(error, name)

    def _stick(self) -> None:
        if self._walk.levels:
            self._walk.levels[-1].is_stuck = True
