"""Simulated volumes into an archive and out of it, by the rules of the real port (supervisor/host/archiving.py).

Nothing on a simulated disk has an owner, a second name or an extended attribute; what an archive says of those is
passed over. A part of the work is done with each member.
"""

from __future__ import annotations

import errno
import io
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from actors.ports import Archived
from sim.world.beneath import DIRECTORY_MODE
from sim.world.errors import kernel_error
from sim.world.nodes import Directory, Regular, Special, SpecialNode, Symlink
from sim.world.walking import remove_tree
from sim.world.writing import FILE_MODE
from supervisor import volume_tar
from supervisor.volume_tar import ArchiveReader, Member, MemberKind

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from sim.world.beneath import SimBeneath, Steps
    from sim.world.disk import SimDisk
    from sim.world.nodes import Node

VOLUME_MODE: Final = 0o777


def make_volume(beneath: SimBeneath, path: Path) -> Steps:
    """Make a directory 0777, durably; one that exists is left as it is."""
    yield from beneath.make_directory(path.parent)
    disk = beneath.disk
    above, name = beneath.parent(path)
    with suppress(FileExistsError):
        disk.make_directory(above, name, DIRECTORY_MODE)
        yield "made"
    made = disk.enter(above, name)
    if made.entries or made.mode != DIRECTORY_MODE:
        return
    disk.change_mode(made, VOLUME_MODE)
    disk.sync(made)
    yield "opened to all"
    disk.sync(above)
    yield "synced"


def measure_volumes(disk: SimDisk, source: Path, volumes: Sequence[str]) -> int:
    """About how many bytes an archive of these directories would take."""
    total_bytes = len(volume_tar.END)
    for volume in volumes:
        with suppress(FileNotFoundError):
            for _, node in _found(disk, disk.find_directory(source), (volume,)):
                total_bytes += volume_tar.about_bytes(node.size_bytes if isinstance(node, Regular) else 0)
    return total_bytes


def write_archive(
    beneath: SimBeneath, path: Path, source: Path, volumes: Sequence[str]
) -> Generator[str, None, Archived]:
    """Write directories of a source into a new file."""
    disk = beneath.disk
    above, name = beneath.parent(path)
    archive = disk.create(above, name, FILE_MODE)
    members, left_out = 0, []
    try:
        yield "created"
        top, _ = beneath.parent(source / "any")
        for volume in volume_tar.in_order(volumes):
            for names, node in _found(disk, top, (volume,)):
                member = _member(names, node)
                if member is None:
                    left_out.append("/".join(names))
                    continue
                content = disk.read(node) if isinstance(node, Regular) else b""
                _write(disk, archive, volume_tar.header(member) + content + volume_tar.padding(len(content)))
                members += 1
                yield f"wrote {'/'.join(names)}"
        _write(disk, archive, volume_tar.END)
    except OSError:
        with suppress(OSError):
            disk.remove(above, name)
        raise
    yield "written"
    return Archived(members=members, left_out=tuple(left_out[: volume_tar.LEFT_OUT_NAMED_MAX]))


def _found(disk: SimDisk, above: Directory, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    directory = disk.enter(above, names[-1])
    if directory.volume is not above.volume:
        raise OSError(errno.EBUSY, "a file system is mounted there")
    if len(names) > volume_tar.DEPTH_MAX:
        raise OSError(errno.ENAMETOOLONG, "directories stand too deep within each other", names[-1])
    yield names, directory
    ordered = volume_tar.in_order(disk.names(directory))
    for name in ordered:
        node = disk.look(directory, name)
        if not isinstance(node, Directory):
            yield (*names, name), node
    for name in ordered:
        if isinstance(directory.entries.get(name), Directory):
            yield from _found(disk, directory, (*names, name))


def _member(names: tuple[str, ...], node: Node) -> Member | None:
    match node:
        case Directory():
            return Member(name=names, kind=MemberKind.DIRECTORY, mode=node.mode, mtime_ns=node.mtime_ns)
        case Regular():
            size_bytes = node.size_bytes
            return Member(
                name=names, kind=MemberKind.REGULAR, mode=node.mode, mtime_ns=node.mtime_ns, size_bytes=size_bytes
            )
        case Symlink():
            kind = MemberKind.SYMLINK
            return Member(name=names, kind=kind, mode=node.mode, mtime_ns=node.mtime_ns, target=node.target)
        case SpecialNode(special=Special.FIFO):
            return Member(name=names, kind=MemberKind.FIFO, mode=node.mode, mtime_ns=node.mtime_ns)
        case _:
            return None


def _write(disk: SimDisk, archive: Regular, data: bytes) -> None:
    if disk.append(archive, data) < len(data):
        raise kernel_error(errno.ENOSPC)


def unpack_archive(beneath: SimBeneath, path: Path, target: Path, volumes: Sequence[str]) -> Steps:
    """Make a new directory of what an archive holds."""
    disk = beneath.disk
    data = disk.read(disk.find_regular(path))
    yield from beneath.make_directory(target.parent)
    above, name = beneath.parent(target)
    top = disk.make_directory(above, name, DIRECTORY_MODE)
    try:
        yield "made"
        reader = ArchiveReader(io.BytesIO(data), volumes)
        way: list[tuple[Directory, Member]] = []
        for member in reader.members():
            _leave(disk, way, len(member.name) - 1)
            _make(disk, top, way, member, b"".join(reader.content()))
            yield f"made {'/'.join(member.name)}"
        _leave(disk, way, 0)
    except OSError:
        with suppress(OSError):
            for _ in remove_tree(beneath, target):
                pass
        raise


def _make(disk: SimDisk, top: Directory, way: list[tuple[Directory, Member]], member: Member, content: bytes) -> None:
    directory = way[-1][0] if way else top
    try:
        made = _made(disk, top, directory, member, content)
    except FileExistsError as error:
        raise volume_tar.damaged(f"{'/'.join(member.name)[:200]!r} stands twice in it") from error
    if isinstance(made, Directory):
        way.append((made, member))
    else:
        made.mtime_ns = member.mtime_ns


def _made(disk: SimDisk, top: Directory, directory: Directory, member: Member, content: bytes) -> Node:
    name = member.name[-1]
    match member.kind:
        case MemberKind.DIRECTORY:
            return disk.make_directory(directory, name, DIRECTORY_MODE)
        case MemberKind.SYMLINK:
            return disk.make_symlink(directory, name, member.target)
        case MemberKind.FIFO:
            return disk.make_special(directory, name, Special.FIFO, mode=member.mode)
        case MemberKind.REGULAR | MemberKind.HARD_LINK:
            data = _linked(disk, top, member) if member.kind is MemberKind.HARD_LINK else content
            made = disk.create(directory, name, FILE_MODE)
            _write(disk, made, data)
            disk.change_mode(made, member.mode)
            return made


def _linked(disk: SimDisk, top: Directory, member: Member) -> bytes:
    """A simulated disk knows no second name: the file gets a copy."""
    *above, last = volume_tar.names_of(member.target)
    directory = top
    try:
        for name in above:
            directory = disk.enter(directory, name)
        node = disk.look(directory, last)
    except OSError as error:
        raise volume_tar.damaged(f"a hard link leads to {member.target[:200]!r}, which is not there") from error
    if not isinstance(node, Regular):
        raise volume_tar.damaged(f"a hard link leads to {member.target[:200]!r}, which is no file")
    return disk.read(node)


def _leave(disk: SimDisk, way: list[tuple[Directory, Member]], depth: int) -> None:
    while len(way) > depth:
        directory, member = way.pop()
        disk.change_mode(directory, member.mode)
        directory.mtime_ns = member.mtime_ns
