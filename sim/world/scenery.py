"""What others put on a simulated disk: by whole paths, parents made, everything already on the platter.

For who furnishes a world, and for programs in it that are modelled as one step.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sim.world import lookup
from sim.world.nodes import Directory, Regular, Special, Symlink

if TYPE_CHECKING:
    from pathlib import Path

    from sim.world.disk import SimDisk
    from sim.world.nodes import SpecialNode


def put_directory(disk: SimDisk, path: Path, *, mode: int = 0o755) -> Directory:
    """The directory at a path, made with its parents when absent; symlinks on the way are followed.

    Raises:
        OSError: ENOTDIR, ELOOP, EROFS.
    """
    with suppress(FileNotFoundError):
        return disk.find_directory(path)
    above = put_directory(disk, path.parent, mode=mode)
    made = disk.make_directory(above, path.name, mode)
    disk.sync(above)
    return made


def put_file(disk: SimDisk, path: Path, data: bytes = b"", *, mode: int = 0o644) -> Regular:
    """A regular file with this content, in place of what had the name.

    Raises:
        OSError: ENOTDIR, EISDIR, ELOOP, EROFS, ENOSPC.
    """
    directory = _cleared(disk, path)
    node = disk.create(directory, path.name, mode)
    disk.append(node, data)
    disk.sync(node)
    disk.sync(directory)
    return node


def put_symlink(disk: SimDisk, path: Path, target: str) -> Symlink:
    """A symlink, in place of what had the name.

    Raises:
        OSError: ENOTDIR, EISDIR, ELOOP, EROFS.
    """
    directory = _cleared(disk, path)
    node = disk.make_symlink(directory, path.name, target)
    disk.sync(directory)
    return node


def put_special(
    disk: SimDisk, path: Path, special: Special, *, mode: int = 0o600, device: tuple[int, int] | None = None
) -> SpecialNode:
    """A device, fifo or socket, in place of what had the name.

    Raises:
        OSError: ENOTDIR, EISDIR, ELOOP, EROFS.
    """
    directory = _cleared(disk, path)
    node = disk.make_special(directory, path.name, special, mode=mode, device=device)
    disk.sync(directory)
    return node


def snapshot(disk: SimDisk, path: Path) -> dict[str, str | bytes | None]:
    """Everything below a directory by relative path, sorted: a file's bytes, a symlink's target, None for the rest."""
    found: dict[str, str | bytes | None] = {}
    pending = [("", lookup.find_directory(disk.top, path))]
    while pending:
        prefix, directory = pending.pop()
        for name, node in directory.entries.items():
            if isinstance(node, Directory):
                pending.append((f"{prefix}{name}/", node.mounted or node))
            found[prefix + name] = _content(node)
    return dict(sorted(found.items()))


def _content(node: object) -> str | bytes | None:
    if isinstance(node, Regular):
        return bytes(node.content)
    return node.target if isinstance(node, Symlink) else None


def _cleared(disk: SimDisk, path: Path) -> Directory:
    directory = put_directory(disk, path.parent)
    if path.name in directory.entries:
        disk.remove(directory, path.name)
    return directory
