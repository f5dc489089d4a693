"""Changing single simulated files, part by part, by the rules of the real port (supervisor/host/writing.py)."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.world.errors import kernel_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from sim.world.beneath import SimBeneath, Steps
    from sim.world.disk import SimDisk
    from sim.world.locks import SimFileLock
    from sim.world.nodes import Directory, Regular

FILE_MODE: Final = 0o600
# A name may have 255 bytes; the rest of a temporary one takes 22.
_NAME_LIMIT_BYTES: Final = 230
_LOCK_TRIES: Final = 8


def replace(beneath: SimBeneath, path: Path, data: bytes, *, is_watched: bool = True) -> Steps:
    """Replace a file: a temporary one beside it, content, sync, rename, sync of the directory.

    Where nobody is told of the parts, nothing comes between them; then what comes of it can be had at once.
    """
    disk = beneath.disk
    directory, name = beneath.parent(path)
    if not is_watched and disk.replace(directory, name, data, FILE_MODE):
        return
    yield from _renamed_to(beneath, directory, name, data, finish=partial(_sync, disk))
    disk.sync(directory)
    yield "directory synced"


def replace_for_boot(beneath: SimBeneath, path: Path, data: bytes) -> Steps:
    """Replace a file without any sync: a temporary one beside it, content, rename."""
    directory, name = beneath.parent(path)
    yield from _renamed_to(beneath, directory, name, data)


def make_file(disk: SimDisk, directory: Directory, name: str, data: bytes, mode: int) -> Steps:
    """Make a file with this content where there is none."""
    yield from _fill(disk, disk.create(directory, name, FILE_MODE), data, mode)


def append(beneath: SimBeneath, path: Path, data: bytes, *, durably: bool) -> Steps:
    """Append in one write, all or nothing; the entry of a file that was made is durable in any case.

    Raises:
        OSError: ENOSPC when not all of it fitted; then none of it is left in the file.
    """
    disk = beneath.disk
    directory, name = beneath.parent(path)
    node, is_new = _open_append(disk, directory, name)
    yield "opened"
    written = disk.append(node, data)
    if written < len(data):
        disk.cut(node, node.size_bytes - written)
        raise kernel_error(errno.ENOSPC, str(path))
    yield "written"
    if durably:
        disk.sync_data(node)
        yield "synced"
    if is_new:
        disk.sync(directory)
        yield "directory synced"


def truncate(beneath: SimBeneath, path: Path, size_bytes: int) -> Steps:
    """Cut a file to a size; one that is shorter already stays as it is."""
    directory, name = beneath.parent(path)
    beneath.disk.cut(beneath.disk.open_to_write(directory, name), size_bytes)
    yield "cut"


def rename(beneath: SimBeneath, source: Path, target: Path) -> Steps:
    """Rename within one volume and sync the target's directory."""
    from_directory, old = beneath.parent(source)
    to_directory, new = beneath.parent(target)
    beneath.refuse_symlink(to_directory, new)
    beneath.disk.rename(from_directory, old, to_directory, new)
    yield "renamed"
    beneath.disk.sync(to_directory)
    yield "directory synced"


def remove_file(beneath: SimBeneath, path: Path) -> Steps:
    """Remove a file, or a symlink itself; absent is fine."""
    with suppress(FileNotFoundError):
        directory, name = beneath.parent(path)
        beneath.disk.remove(directory, name)
        yield "removed"


def lock(beneath: SimBeneath, path: Path, owner: object) -> Generator[str, None, SimFileLock]:
    """Take an exclusive lock at once, on the file that stands there when it is taken.

    Raises:
        BlockingIOError: somebody holds it.
    """
    disk = beneath.disk
    for _ in range(_LOCK_TRIES):
        directory, name = beneath.parent(path)
        node = _open_for_lock(disk, directory, name)
        yield "opened"
        taken = disk.lock(node, owner)
        if directory.entries.get(name) is node:
            yield "locked"
            return taken
        # The file was removed or replaced before we had it: whoever comes next would lock another one.
        taken.close()
    raise BlockingIOError(errno.EAGAIN, "the file is being replaced all the time", str(path))


def temporary_name(disk: SimDisk, name: str) -> str:
    """A name of its own for what will be renamed to this one."""
    short = name.encode("utf-8", "surrogateescape")[:_NAME_LIMIT_BYTES].decode("utf-8", "surrogateescape")
    return f".{short}.{disk.fresh_suffix()}.tmp"


def _no_more(_node: Regular) -> Steps:
    yield from ()


def _sync(disk: SimDisk, node: Regular) -> Steps:
    disk.sync(node)
    yield "synced"


def _renamed_to(
    beneath: SimBeneath,
    directory: Directory,
    name: str,
    data: bytes,
    *,
    finish: Callable[[Regular], Steps] = _no_more,
) -> Steps:
    """A temporary file with this content, which is finished and takes the name."""
    disk = beneath.disk
    beneath.refuse_symlink(directory, name)
    temporary = temporary_name(disk, name)
    node = disk.create(directory, temporary, FILE_MODE)
    try:
        yield from _fill(disk, node, data, FILE_MODE)
        yield from finish(node)
        disk.rename(directory, temporary, directory, name)
    except OSError:
        with suppress(FileNotFoundError):
            disk.remove(directory, temporary)
        raise
    yield "renamed"


def _open_append(disk: SimDisk, directory: Directory, name: str) -> tuple[Regular, bool]:
    try:
        return disk.open_to_write(directory, name), False
    except FileNotFoundError:
        return disk.create(directory, name, FILE_MODE), True


def _open_for_lock(disk: SimDisk, directory: Directory, name: str) -> Regular:
    node, _ = _open_append(disk, directory, name)
    return node


def _fill(disk: SimDisk, node: Regular, data: bytes, mode: int) -> Steps:
    yield "created"
    disk.change_mode(node, mode)
    written = disk.append(node, data)
    while written < len(data):
        written += disk.append(node, data[written:])
    yield "written"
