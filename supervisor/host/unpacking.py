"""Volumes out of an archive. Everything here blocks, and is called in a thread.

Everything is made anew (O_EXCL, mkdir, link) in a directory that is held open and was reached without any symlink, so
that nothing that stands anywhere is written to; what a hostile archive names beyond that is refused by
`supervisor.volume_tar` or by the kernel. No memory is needed for more than a part of one file.

Source: openat(2), linkat(2), utimensat(2), xattr(7) of man-pages 6.9.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from supervisor import volume_tar
from supervisor.host.archiving import NEW, NO_XATTRS, READ
from supervisor.host.beneath import DIRECTORY_MODE, open_directory
from supervisor.host.trees import remove_tree
from supervisor.host.writing import FILE_MODE
from supervisor.volume_tar import CHUNK_BYTES, ArchiveReader, Member, MemberKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from supervisor.host.beneath import Beneath

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


def unpack_archive(beneath: Beneath, path: Path, target: Path, volumes: Sequence[str]) -> None:
    """Make a new directory of what an archive holds.

    Raises:
        DamagedArchiveError: it is no archive of these volumes.
        OSError: FileExistsError, ENOSPC, …
    """
    fd = os.open(path, READ)
    with open(fd, "rb", buffering=CHUNK_BYTES) as archive:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        beneath.make_directory(target.parent)
        with beneath.parent(target) as (above, name):
            os.mkdir(name, DIRECTORY_MODE, dir_fd=above)
            try:
                top = open_directory(name, above)
                try:
                    _Unpacking(top).all_of(ArchiveReader(archive, volumes))
                finally:
                    os.close(top)
            except BaseException:
                with suppress(OSError):  # what cannot be removed hides not why it was to be
                    remove_tree(beneath, target)
                raise


class _Unpacking:
    """A directory that is being filled.

    Args:
        top: it, open.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._way: list[Member] = []
        """The directories that are open now, from the volume down: modes and times are theirs when they are full."""
        self._here: int | None = None

    def all_of(self, reader: ArchiveReader) -> None:
        """Make everything."""
        try:
            for member in reader.members():
                self._leave(len(member.name) - 1)
                self._make(member, reader)
            self._leave(0)
        finally:
            self._forget()

    def _make(self, member: Member, reader: ArchiveReader) -> None:
        name, directory = member.name[-1], self._directory()
        try:
            match member.kind:
                case MemberKind.DIRECTORY:
                    os.mkdir(name, DIRECTORY_MODE, dir_fd=directory)
                    self._way.append(member)
                    self._forget()
                case MemberKind.REGULAR:
                    _make_file(name, directory, member, reader)
                case MemberKind.HARD_LINK:
                    self._link(name, directory, member)
                case MemberKind.SYMLINK:
                    os.symlink(member.target, name, dir_fd=directory)
                    _finish_unopened(name, directory, member)
                case MemberKind.FIFO:
                    os.mkfifo(name, 0, dir_fd=directory)
                    _finish_unopened(name, directory, member)
                    os.chmod(name, member.mode, dir_fd=directory)
        except FileExistsError as error:
            raise volume_tar.damaged(f"{'/'.join(member.name)[:200]!r} stands twice in it") from error

    def _link(self, name: str, directory: int, member: Member) -> None:
        *above, last = volume_tar.names_of(member.target)
        try:
            with _opened(self._top, above) as source:
                if not stat.S_ISREG(os.stat(last, dir_fd=source, follow_symlinks=False).st_mode):
                    raise volume_tar.damaged(f"a hard link leads to {member.target[:200]!r}, which is no file")
                os.link(last, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise volume_tar.damaged(f"a hard link leads to {member.target[:200]!r}, which is not there") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise volume_tar.damaged(f"a hard link leads through the symlink {error.filename!r}") from error
            raise

    def _leave(self, depth: int) -> None:
        """Finish the directories below a depth: nothing more comes into them."""
        while len(self._way) > depth:
            member, directory = self._way[-1], self._directory()
            _finish(directory, member)
            self._forget()
            self._way.pop()

    def _directory(self) -> int:
        """The innermost directory, open."""
        if self._here is None:
            with _opened(self._top, [member.name[-1] for member in self._way]) as directory:
                self._here = os.dup(directory)
        return self._here

    def _forget(self) -> None:
        if self._here is not None:
            os.close(self._here)
        self._here = None


@contextmanager
def _opened(top: int, names: Sequence[str]) -> Iterator[int]:
    """A directory below the top, reached without any symlink."""
    fd = os.open(".", _DIRECTORY, dir_fd=top)
    try:
        for name in names:
            below = open_directory(name, fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _make_file(name: str, directory: int, member: Member, reader: ArchiveReader) -> None:
    fd = os.open(name, NEW, FILE_MODE, dir_fd=directory)
    try:
        for part in reader.content():
            # What is nothing but zeros takes no room.
            if part.count(0) == len(part):
                os.lseek(fd, len(part), os.SEEK_CUR)
            else:
                _write_all(fd, part)
        os.ftruncate(fd, member.size_bytes)
        _finish(fd, member)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _finish(fd: int, member: Member) -> None:
    """Owner first, since a change of it takes the set-user-ID bit and capabilities away; the time last."""
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != (member.uid, member.gid):
        os.fchown(fd, member.uid, member.gid)
    for name, value in member.xattrs:
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno not in NO_XATTRS:
                raise
    os.fchmod(fd, member.mode)
    os.utime(fd, ns=(member.mtime_ns, member.mtime_ns))


def _finish_unopened(name: str, directory: int, member: Member) -> None:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (found.st_uid, found.st_gid) != (member.uid, member.gid):
        os.chown(name, member.uid, member.gid, dir_fd=directory, follow_symlinks=False)
    os.utime(name, ns=(member.mtime_ns, member.mtime_ns), dir_fd=directory, follow_symlinks=False)
