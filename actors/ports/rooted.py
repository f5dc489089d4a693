"""Where a process finds a path that has another root directory: no symlink leads out of that.

Source: path_resolution(7), symlink(7).
"""

from __future__ import annotations

import errno
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LINKS_MAX: Final = 40


def find_in(root: Path, path: str, read_link: Callable[[Path], str | None]) -> Path:
    """Where that is on the host; it need not be there.

    Args:
        root: the root directory.
        path: absolute.
        read_link: where the symlink leads that stands at a path of the host, as it says; None when none does.

    Raises:
        OSError: ELOOP after too many links; what reading one meets.
    """
    pending = _names(path)
    here: list[str] = []
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            here = here[:-1]
            continue
        target = read_link(root.joinpath(*here, name))
        if target is None:
            here.append(name)
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, "Too many levels of symbolic links", str(root.joinpath(*here, name)))
        if target.startswith("/"):
            here.clear()
        pending += _names(target)
    return root.joinpath(*here)


def _names(path: str) -> list[str]:
    """The components, the last one first."""
    return [name for name in reversed(PurePosixPath(path).parts) if not name.startswith("/")]
