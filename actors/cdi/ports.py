"""What the library needs of the outside: spec files and device nodes. `actors.cdi.host` has the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class SpecFiles(Protocol):
    """Spec directories, read."""

    def list_directory(self, path: str) -> tuple[str, ...]:
        """Names in a directory.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read.
        """
        ...

    def read(self, path: str, *, limit_bytes: int) -> bytes | None:
        """A whole regular file, following symlinks; None for a directory, which is no spec file whatever its name is.

        Raises:
            OSError: it cannot be read, or it is larger than the limit.
        """
        ...


class WritableSpecFiles(SpecFiles, Protocol):
    """Spec directories, written."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a file under a temporary name beside it and rename it; missing directories are made (0755)."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """As `replace`, but never over a file that is there.

        Raises:
            FileExistsError: one is.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file.

        Raises:
            FileNotFoundError: there is none.
        """
        ...


class AsyncSpecFiles(Protocol):
    """Spec directories, read by somebody who must not wait: Greenroom's port for files fits as it is."""

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """As `SpecFiles.list_directory`."""
        ...

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """As `SpecFiles.read`; raises IsADirectoryError for a directory."""
        ...


@attrs.frozen(kw_only=True)
class HostNode:
    """What lstat(2) says about a path on the host.

    Attributes:
        type: "b", "c" or "p"; "" when it is no device node (a file, a directory, a symlink, a socket).
        mode: the permission bits alone.
    """

    type: str
    major: int = 0
    minor: int = 0
    mode: int = 0


Lstat: TypeAlias = "Callable[[str], HostNode | None]"
"""What stands at a path of the host, not following a last symlink; None when nothing does, or nobody may look."""
