"""What a test sees of a directory."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def tree(directory: Path) -> dict[str, Any]:
    """Everything in a directory, with contents."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def modes(directory: Path) -> dict[str, int]:
    """The permissions of everything in a directory."""
    return {str(path.relative_to(directory)): stat.S_IMODE(path.lstat().st_mode) for path in directory.rglob("*")}
