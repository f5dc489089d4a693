"""Volumes, made and written into an archive. Everything here blocks, and is called in a thread.

No symlink is followed, and no memory is needed for more than the names of one directory.

Source: openat(2), xattr(7) of man-pages 6.9.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from actors.ports import Archived
from supervisor import volume_tar
from supervisor.host.beneath import DIRECTORY_MODE, open_directory
from supervisor.host.trees import DirectoryWalk
from supervisor.host.writing import FILE_MODE
from supervisor.volume_tar import CHUNK_BYTES, Member, MemberKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from supervisor.host.beneath import Beneath
    from supervisor.host.trees import DirectoryLevel

VOLUME_MODE: Final = 0o777

READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
NO_XATTRS: Final = frozenset({errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENODATA})
"""What a file system says that has none, or not this one."""


def make_volume(beneath: Beneath, path: Path) -> None:
    """Make a directory 0777, durably; one that exists is left as it is.

    One that is empty, ours and 0700 is what somebody was killed over who was making it, and is made anew.
    """
    beneath.make_directory(path.parent)
    with beneath.parent(path) as (above, name):
        with suppress(FileExistsError):
            os.mkdir(name, DIRECTORY_MODE, dir_fd=above)
        directory = open_directory(name, above)
        try:
            if not _is_fresh(directory):
                return
            os.fchmod(directory, VOLUME_MODE)  # whatever the umask
            os.fsync(directory)
        finally:
            os.close(directory)
        os.fsync(above)


def _is_fresh(directory: int) -> bool:
    found = os.fstat(directory)
    with os.scandir(directory) as entries:
        is_empty = next(entries, None) is None
    return is_empty and stat.S_IMODE(found.st_mode) == DIRECTORY_MODE and found.st_uid == os.geteuid()


def write_archive(beneath: Beneath, path: Path, source: Path, volumes: Sequence[str]) -> Archived:
    """Write directories of a source into a new file.

    Raises:
        OSError: FileExistsError, ENOSPC, …; ENOTDIR for a volume that is no directory, EBUSY for a mount.
    """
    with beneath.parent(path) as (above, name):
        fd = os.open(name, NEW, FILE_MODE, dir_fd=above)
        try:
            with open(fd, "wb", buffering=CHUNK_BYTES) as archive, beneath.parent(source / "any") as (directory, _):
                writing = _Writing(archive)
                for volume in volume_tar.in_order(volumes):
                    _Packing(source / volume, directory, writing).walk(volume)
                archive.write(volume_tar.END)
        except BaseException:
            with suppress(OSError):  # what cannot be removed hides not why it was to be
                os.unlink(name, dir_fd=above)
            raise
    return Archived(members=writing.members, left_out=tuple(writing.left_out))


def measure_volumes(beneath: Beneath, source: Path, volumes: Sequence[str]) -> int:
    """About how many bytes an archive of these directories would take.

    Raises:
        OSError: one of them cannot be looked through.
    """
    total_bytes = len(volume_tar.END)
    for volume in volumes:
        with suppress(FileNotFoundError), beneath.parent(source / volume) as (directory, name):
            measuring = _Measuring(source / volume, directory)
            measuring.walk(name)
            total_bytes += measuring.total_bytes
    return total_bytes


class _Measuring(DirectoryWalk):
    """Adds up what is met; what is written meanwhile is counted or not."""

    def __init__(self, path: Path, directory: int) -> None:
        super().__init__(path, directory)
        self.total_bytes = 0

    def meet(self, name: str, directory: int) -> None:
        """Count what is no directory."""
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            self.total_bytes += volume_tar.about_bytes(found.st_size if stat.S_ISREG(found.st_mode) else 0)

    def done(self, level: DirectoryLevel, here: int, above: int) -> None:  # noqa: ARG002  those of the base class
        """Count a directory."""
        self.total_bytes += volume_tar.about_bytes(0)

    def failed(self, error: OSError, name: str, directory: int) -> None:  # noqa: ARG002  those of the base class
        """A directory that is there and cannot be looked through."""
        raise self.located(error, name)


class _Writing:
    """An archive that is being written.

    Attributes:
        members: how many there are so far.
        left_out: what there is no kind for, by name.
    """

    def __init__(self, archive: BinaryIO) -> None:
        self._archive = archive
        self.members = 0
        self.left_out: list[str] = []

    def put(self, member: Member, content: int | None = None) -> None:
        """Write a member, with the content of an open file."""
        self._archive.write(volume_tar.header(member))
        self.members += 1
        rest_bytes = member.size_bytes if content is not None else 0
        while content is not None and rest_bytes:
            part = os.read(content, min(rest_bytes, CHUNK_BYTES))
            if not part:
                raise OSError(errno.EIO, "the file became shorter while it was read", "/".join(member.name))
            self._archive.write(part)
            rest_bytes -= len(part)
        self._archive.write(volume_tar.padding(member.size_bytes))

    def leave_out(self, name: str) -> None:
        """Note what is not written."""
        if len(self.left_out) < volume_tar.LEFT_OUT_NAMED_MAX:
            self.left_out.append(name)


class _Packing(DirectoryWalk):
    """Goes through a volume, in the order of the names' bytes: of each directory first the files, then what is below.

    Args:
        path: of the volume, for messages.
        directory: that holds it.
        writing: takes what is met.
    """

    def __init__(self, path: Path, directory: int, writing: _Writing) -> None:
        super().__init__(path, directory)
        self._writing = writing
        # Of files with more than one name, the first one, by device and inode.
        self._linked: dict[tuple[int, int], str] = {}

    def scan(self, directory: int) -> None:
        """Write the directory itself, then what is in it."""
        names = self._names()
        if len(names) > volume_tar.DEPTH_MAX:
            raise OSError(errno.ENAMETOOLONG, "directories stand too deep within each other", names[-1])
        found = os.fstat(directory)
        self._writing.put(_member(names, MemberKind.DIRECTORY, found, xattrs=_xattrs(directory)))
        with os.scandir(directory) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        ordered = volume_tar.in_order(kinds)
        self.levels[-1].pending += [name for name in reversed(ordered) if kinds[name]]
        for name in ordered:
            if not kinds[name]:
                self.meet(name, directory)

    def meet(self, name: str, directory: int) -> None:
        """Write what is no directory."""
        names = self._names(name)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            self._put_file(name, directory, names)
        elif stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=directory)
            self._writing.put(_member(names, MemberKind.SYMLINK, found, target=target))
        elif stat.S_ISFIFO(found.st_mode):
            self._writing.put(_member(names, MemberKind.FIFO, found))
        else:
            self._writing.leave_out("/".join(names))

    def done(self, level: DirectoryLevel, here: int, above: int) -> None:
        """Nothing is left to do with it."""

    def failed(self, error: OSError, name: str, directory: int) -> None:  # noqa: ARG002  those of the base class
        """An archive without a directory that is there is none."""
        raise self.located(error, name)

    def _put_file(self, name: str, directory: int, names: tuple[str, ...]) -> None:
        fd = os.open(name, READ, dir_fd=directory)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.ESTALE, "another file took its place while it was read", "/".join(names))
            first = self._first_name(found, names)
            if first is not None:
                self._writing.put(_member(names, MemberKind.HARD_LINK, found, target=first))
                return
            member = _member(names, MemberKind.REGULAR, found, xattrs=_xattrs(fd), size_bytes=found.st_size)
            self._writing.put(member, fd)
        finally:
            os.close(fd)

    def _first_name(self, found: os.stat_result, names: tuple[str, ...]) -> str | None:
        """The name that a file has in the archive already, in this volume."""
        if found.st_nlink == 1:
            return None
        name = "/".join(names)
        first = self._linked.setdefault((found.st_dev, found.st_ino), name)
        return None if first == name else first

    def _names(self, *last: str) -> tuple[str, ...]:
        return (*(level.name for level in self.levels), *last)


def _member(
    names: tuple[str, ...],
    kind: MemberKind,
    found: os.stat_result,
    *,
    target: str = "",
    size_bytes: int = 0,
    xattrs: tuple[tuple[str, bytes], ...] = (),
) -> Member:
    return Member(
        name=names,
        kind=kind,
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=found.st_mtime_ns,
        size_bytes=size_bytes,
        target=target,
        xattrs=xattrs,
    )


def _xattrs(fd: int) -> tuple[tuple[str, bytes], ...]:
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno in NO_XATTRS:
            return ()
        raise
    return tuple((name, os.getxattr(fd, name)) for name in sorted(names) if volume_tar.is_kept(name))
