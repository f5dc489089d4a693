"""Reading simulated files that were given to us; symlinks are followed, and only regular files are read."""

from __future__ import annotations

import errno
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from actors.ports import FileDigests, FilePart, FileStat, TooLargeError
from actors.ports.rooted import find_in
from sim.world.nodes import SpecialNode, Symlink

if TYPE_CHECKING:
    from pathlib import Path

    from sim.world.disk import SimDisk

_ENTRIES_MAX: Final = 100_000


def read(disk: SimDisk, path: Path, limit_bytes: int) -> bytes:
    """Read a whole regular file."""
    content = disk.read(disk.find_regular(path), limit_bytes=limit_bytes + 1)
    if len(content) > limit_bytes:
        raise TooLargeError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return content


def read_from(disk: SimDisk, path: Path, offset_bytes: int, limit_bytes: int) -> bytes:
    """Read a part of a regular file."""
    return disk.read(disk.find_regular(path), offset_bytes=offset_bytes, limit_bytes=limit_bytes)


def digest(disk: SimDisk, path: Path) -> str:
    """BLAKE3 of a regular file, in this thread."""
    return blake3(disk.read(disk.find_regular(path))).hexdigest()


def digest_parts(disk: SimDisk, path: Path, part_bytes: int) -> FileDigests:
    """BLAKE3 of a regular file and of its parts, in this thread."""
    content = disk.read(disk.find_regular(path))
    parts = [content[start : start + part_bytes] for start in range(0, len(content), part_bytes)]
    return FileDigests(
        blake3=blake3(content).hexdigest(),
        parts=tuple(FilePart(size_bytes=len(part), blake3=blake3(part).hexdigest()) for part in parts),
    )


def sha256(disk: SimDisk, path: Path) -> str:
    """SHA-256 of a regular file."""
    return hashlib.sha256(disk.read(disk.find_regular(path))).hexdigest()


def list_directory(disk: SimDisk, path: Path) -> tuple[str, ...]:
    """The names in a directory, sorted.

    Raises:
        OSError: ENOENT, ENOTDIR; EOVERFLOW for more than 100,000 names.
    """
    names = disk.names(disk.find_directory(path))
    if len(names) > _ENTRIES_MAX:
        raise OSError(errno.EOVERFLOW, f"more than {_ENTRIES_MAX} entries", str(path))
    return tuple(sorted(names))


def find_below(disk: SimDisk, root: Path, path: str) -> Path:
    """Where a process with that root finds a path."""
    return find_in(root, path, partial(read_link, disk))


def look_at(disk: SimDisk, path: Path, *, follow: bool) -> FileStat | None:
    """What stands there; None when nothing does, which also holds below something that is no directory."""
    try:
        node = disk.find(path, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileStat(
        kind=node.kind,
        size_bytes=node.size_bytes,
        mode=node.mode,
        inode=node.inode,
        mtime_ns=node.mtime_ns,
        device=node.device if isinstance(node, SpecialNode) else None,
    )


def read_link(disk: SimDisk, path: Path) -> str | None:
    """Where a symlink leads; None when none stands there."""
    try:
        node = disk.find(path, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return node.target if isinstance(node, Symlink) else None


def free_bytes(disk: SimDisk, path: Path) -> int:
    """How much more content the volume takes that holds a path."""
    return disk.find(path).volume.free_bytes
