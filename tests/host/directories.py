"""What a test sees of a directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any


def tree(directory: Path) -> dict[str, Any]:
    """Everything in a directory, with contents."""
    found: dict[str, Any] = {}
    # Not rglob, which follows a symlink to see whether it is a directory, and fails for one that nobody can follow.
    names = [Path(above, name) for above, folders, files in os.walk(directory) for name in folders + files]
    for path in sorted(names):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def modes(directory: Path) -> dict[str, int]:
    """The permissions of everything in a directory."""
    return {str(path.relative_to(directory)): stat.S_IMODE(path.lstat().st_mode) for path in directory.rglob("*")}
