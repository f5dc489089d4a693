"""What is mounted where, out of /proc/self/mountinfo.

Source: proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_LINE: Final = re.compile(r"\d+ \d+ \S+ \S+ (?P<at>\S+) (?P<own>\S+)(?: \S+)* - (?P<type>\S+) \S*(?: (?P<whole>\S+))?")


@attrs.frozen(kw_only=True)
class MountPoint:
    """One mount; what is mounted over a path later hides what was there."""

    path: str
    file_system: str
    options: frozenset[str] = frozenset()

    @property
    def is_read_only(self) -> bool:
        """Whether nobody can write there."""
        return "ro" in self.options


def mounts_of(mountinfo: str) -> tuple[MountPoint, ...]:
    """The mounts in their order; lines that say none are passed over."""
    found = filter(None, map(_LINE.fullmatch, mountinfo.splitlines()))
    return tuple(
        MountPoint(
            path=_plain(line["at"]),
            file_system=line["type"],
            options=frozenset((*line["own"].split(","), *(line["whole"] or "").split(","))),
        )
        for line in found
    )


def mount_of(path: str, mounts: Iterable[MountPoint]) -> MountPoint | None:
    """The mount that a path is in: the deepest one, and of those at one place the last."""
    inside = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.path)]
    deepest = max((len(PurePosixPath(mount.path).parts) for mount in inside), default=0)
    return next((each for each in reversed(inside) if len(PurePosixPath(each.path).parts) == deepest), None)


def _plain(path: str) -> str:
    """Blanks, tabs, newlines and backslashes stand in it as octal numbers."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path)
