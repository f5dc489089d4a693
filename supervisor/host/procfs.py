"""What /proc says about processes.

Source: proc_pid_stat(5), proc_pid_cmdline(5), proc_tid_children(5) of man-pages 6.9; seen on Linux 6.18. None of these
files is opened with a path from outside, and all are read whole, so nothing here needs a file port.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_BYTES: Final = 1 << 16
# Linux takes argument lists of a quarter of the stack limit, 2 MiB by default; what is longer is no command of ours.
_ARGUMENTS_LIMIT_BYTES: Final = 4 << 20
# A process may end between listing and reading: its directory is gone (ENOENT) or still open without content (ESRCH).
_GONE: Final = frozenset({errno.ENOENT, errno.ESRCH})


@attrs.frozen(kw_only=True)
class ProcessStat:
    """Some fields of /proc/PID/stat, by their numbers in proc_pid_stat(5): 1, 3, 4, 6 and 22.

    Attributes:
        pid: in the PID namespace that /proc belongs to, as the next two.
        state: one letter; Z is a zombie, X is all but gone.
        parent: pid of the parent, 0 when it is outside the namespace.
        session: pid of the session's leader, 0 when it is outside the namespace. A zombie still has one.
        start_ticks: clock ticks from boot to its start.
    """

    pid: int
    state: str
    parent: int
    session: int
    start_ticks: int

    @property
    def is_running(self) -> bool:
        """Whether it still executes, or could."""
        return self.state not in "ZXx"


def parse_stat(text: bytes) -> ProcessStat:
    """Take /proc/PID/stat apart.

    The second field is the command's name in parentheses and may itself hold spaces, parentheses and newlines; what
    comes after it are letters and numbers, so the last `)` ends it.
    """
    begin, end = text.index(b"("), text.rindex(b")")
    after = text[end + 1 :].split()
    return ProcessStat(
        pid=int(text[:begin]),
        state=after[0].decode("ascii"),
        parent=int(after[1]),
        session=int(after[3]),
        start_ticks=int(after[19]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """What the kernel says about a process; None when there is none."""
    text = _read(f"/proc/{pid}/stat", limit_bytes=_CHUNK_BYTES)
    return parse_stat(text) if text else None


def read_arguments(pid: int) -> tuple[bytes, ...]:
    """The arguments a process was started with; empty for zombies, kernel threads and what is gone."""
    text = _read(f"/proc/{pid}/cmdline", limit_bytes=_ARGUMENTS_LIMIT_BYTES)
    return tuple(text.removesuffix(b"\0").split(b"\0")) if text else ()


def descriptor_targets(pid: int) -> Iterator[str]:
    """What the open descriptors of a process lead to; nothing for a zombie and what is gone."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        if error.errno in _GONE:
            return
        raise
    for name in names:
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """What a process has open: what the link of each descriptor says, and what is behind it; nothing for a zombie.

    A descriptor of a device node that only names it (O_PATH, open(2)) opens no device, and is passed over. Measured on
    runsc 20240729: a sandbox keeps one of every file that a container has looked at below a bind mount.
    """
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        if error.errno in _GONE:
            return
        raise
    for name in names:
        with suppress(FileNotFoundError):  # closed meanwhile
            target, told = os.readlink(f"/proc/{pid}/fd/{name}"), os.stat(f"/proc/{pid}/fd/{name}")
            if not (stat.S_ISCHR(told.st_mode) and _only_names(pid, name)):
                yield target, told


def _only_names(pid: int, descriptor: str) -> bool:
    told = _read(f"/proc/{pid}/fdinfo/{descriptor}", limit_bytes=_CHUNK_BYTES)
    flags = next((line.split()[1] for line in told.splitlines() if line.startswith(b"flags:")), b"0")
    return bool(int(flags, 8) & os.O_PATH)


def process_ids() -> Iterator[int]:
    """Every process of our PID namespace, in no order."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def has_children_files() -> bool:
    """Whether this kernel has /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)."""
    return os.path.exists("/proc/thread-self/children")


def listed_children() -> list[int]:
    """Our children by the children files of all our threads.

    A child may be missing from one reading when another child is reaped by a thread meanwhile: the kernel goes on by
    position (fs/proc/array.c, get_children_pid). Who needs them all reads until two readings agree.
    """
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        found.extend(map(int, _read(f"/proc/self/task/{thread}/children", limit_bytes=None).split()))
    return found


def scanned_children() -> list[int]:
    """Our children by looking at every process: for kernels without the children files."""
    ours = os.getpid()
    return [pid for pid in process_ids() if (stat := read_stat(pid)) and stat.parent == ours]


def _read(path: str, *, limit_bytes: int | None) -> bytes:
    """The content of a file below /proc, empty when what it tells about is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return b""
        raise
    try:
        content = b""
        while limit_bytes is None or len(content) < limit_bytes:
            chunk = os.read(fd, _CHUNK_BYTES)
            if not chunk:
                break
            content += chunk
    except OSError as error:
        if error.errno in _GONE:
            return b""
        raise
    else:
        return content
    finally:
        os.close(fd)
