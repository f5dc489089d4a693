"""Reading what we were given. Everything here blocks, and is called in a thread.

Symlinks are followed here: a rootfs, a bundle or an assignment is where its owner says. But only regular files are
read, and none is opened in a way that waits: a fifo in place of a file must not stop us.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from actors.ports import FileDigests, FileKind, FilePart, FileStat, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Small enough for malloc to take it from memory that it has: what is larger it may keep, once for every thread.
_CHUNK_BYTES: Final = 1 << 16
_DIGEST_CHUNK_BYTES: Final = 4 << 20
_ENTRIES_MAX: Final = 100_000
_KINDS: Final = {
    stat.S_IFREG: FileKind.REGULAR,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFLNK: FileKind.SYMLINK,
    stat.S_IFCHR: FileKind.CHARACTER_DEVICE,
}


def read(path: Path, limit_bytes: int) -> bytes:
    """Read a whole regular file; files of /proc and /sys, which say they are empty, too."""
    with _open_regular(path) as fd:
        content = _read_up_to(fd, limit_bytes + 1)
    if len(content) > limit_bytes:
        raise TooLargeError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return content


def read_from(path: Path, offset_bytes: int, limit_bytes: int) -> bytes:
    """Read a part of a regular file."""
    with _open_regular(path) as fd:
        os.lseek(fd, offset_bytes, os.SEEK_SET)
        return _read_up_to(fd, limit_bytes)


def digest(path: Path) -> str:
    """BLAKE3 of a regular file, on all cores.

    Not by mmap, although that saves a copy: when a mapped file is cut short or its disk fails, the kernel answers with
    SIGBUS, and that would be the end of PID 1.
    """
    hasher = blake3(max_threads=blake3.AUTO)
    for chunk in _chunks(path):
        hasher.update(chunk)
    return hasher.hexdigest()


def digest_parts(path: Path, part_bytes: int) -> FileDigests:
    """BLAKE3 of a regular file and of its parts, on all cores."""
    whole, part = blake3(max_threads=blake3.AUTO), blake3(max_threads=blake3.AUTO)
    parts: list[FilePart] = []
    held_bytes = 0
    for chunk in _chunks(path):
        whole.update(chunk)
        start = 0
        while start < len(chunk):
            with chunk[start : start + part_bytes - held_bytes] as piece:
                part.update(piece)
                start += len(piece)
                held_bytes += len(piece)
            if held_bytes == part_bytes:
                parts.append(FilePart(size_bytes=held_bytes, blake3=part.hexdigest()))
                part.reset()
                held_bytes = 0
    if held_bytes:
        parts.append(FilePart(size_bytes=held_bytes, blake3=part.hexdigest()))
    return FileDigests(blake3=whole.hexdigest(), parts=tuple(parts))


def sha256(path: Path) -> str:
    """SHA-256 of a regular file; hashlib lets other threads run meanwhile."""
    hasher = hashlib.sha256()
    for chunk in _chunks(path):
        hasher.update(chunk)
    return hasher.hexdigest()


def list_directory(path: Path) -> tuple[str, ...]:
    """The names in a directory, sorted.

    Raises:
        OSError: ENOENT, ENOTDIR; EOVERFLOW for more than 100,000 names.
    """
    with os.scandir(path) as entries:
        names = [entry.name for entry in islice(entries, _ENTRIES_MAX + 1)]
    if len(names) > _ENTRIES_MAX:
        raise OSError(errno.EOVERFLOW, f"more than {_ENTRIES_MAX} entries", str(path))
    return tuple(sorted(names))


def look_at(path: Path, *, follow: bool) -> FileStat | None:
    """What stands there; None when nothing does, which also holds below something that is no directory."""
    try:
        found = os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    kind = stat.S_IFMT(found.st_mode)
    return FileStat(
        kind=_KINDS.get(kind, FileKind.OTHER),
        size_bytes=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        inode=found.st_ino,
        mtime_ns=found.st_mtime_ns,
        device=(os.major(found.st_rdev), os.minor(found.st_rdev)) if kind in {stat.S_IFCHR, stat.S_IFBLK} else None,
    )


def read_link(path: Path) -> str | None:
    """Where a symlink leads; None when none stands there, which also holds below something that is no directory."""
    try:
        return os.readlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:  # something else stands there
            return None
        raise


def free_bytes(path: Path) -> int:
    """Bytes that we may still write there; what the file system keeps for a privileged root is not counted."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


@contextmanager
def _open_regular(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield fd
    finally:
        os.close(fd)


def _chunks(path: Path) -> Iterator[memoryview]:
    """A regular file in parts, each valid until the next one is asked for.

    The buffer is a mapping of its own and goes back to the kernel: one of malloc's would stay with every thread
    that has hashed something, four megabytes each.
    """
    with _open_regular(path) as fd, mmap.mmap(-1, _DIGEST_CHUNK_BYTES) as mapping, memoryview(mapping) as buffer:
        while count := os.readv(fd, [buffer]):
            with buffer[:count] as chunk:
                yield chunk


def _read_up_to(fd: int, limit_bytes: int) -> bytes:
    chunks = []
    left_bytes = limit_bytes
    while left_bytes > 0 and (chunk := os.read(fd, min(left_bytes, _CHUNK_BYTES))):
        chunks.append(chunk)
        left_bytes -= len(chunk)
    return b"".join(chunks)
