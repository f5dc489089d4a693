"""A folder in which a long command keeps what it has done, and what says which code has done it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from supervisor.host.reading import digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

SOURCES: Final = (".py", ".toml")
"""Ends of the names of files that decide what a package does."""


def make_folder(path: Path) -> None:
    """Make a folder, and those above it; one that is there stays as it is.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    path.mkdir(parents=True, exist_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, as far as it can be removed."""
    shutil.rmtree(path, ignore_errors=True)


def files_in(folder: Path, suffix: str) -> list[Path]:
    """The files in a folder whose names end so, by name; hidden ones, which are not whole yet, are left out.

    Raises:
        OSError: it cannot be looked at.
    """
    return sorted(path for path in folder.iterdir() if path.suffix == suffix and not path.name.startswith("."))


def whole_path(path: Path) -> Path:
    """The same from wherever it is looked at."""
    return path.resolve()


def source_digest(modules: Iterable[ModuleType]) -> str:
    """BLAKE2b of the sources of these packages, with their names: the same wherever they are installed."""
    whole = hashlib.blake2b(digest_size=16)
    for module in modules:
        folder = Path(str(module.__file__)).parent
        for path in sorted(each for each in folder.rglob("*") if each.suffix in SOURCES):
            name = f"{module.__name__}/{path.relative_to(folder).as_posix()}"
            whole.update(f"{name} {digest(path)}\n".encode())
    return whole.hexdigest()
