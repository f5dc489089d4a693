"""What /proc says about processes.

Source: proc_pid_stat(5), proc_pid_cmdline(5), proc_tid_children(5) of man-pages 6.9; seen on Linux 6.18. None of these
files is opened with a path from outside, and all are read whole, so nothing here needs a file port.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
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
_PTS_MAJORS: Final = range(136, 144)
"""Of the terminals below /dev/pts. Source: Documentation/admin-guide/devices.txt of Linux."""
_NUMBERED: Final = re.compile(r"/[0-9]+(?: \(deleted\))?\Z")
_PF_EXITING: Final = 0x4
_PF_KTHREAD: Final = 0x200000
_EXEC_TRIES: Final = 500
_EXEC_PAUSE_S: Final = 0.001


@attrs.frozen(kw_only=True)
class ProcessStat:
    """Some fields of /proc/PID/stat, by their numbers in proc_pid_stat(5): 1, 3, 4, 6, 9, 22 and 26.

    Attributes:
        pid: in the PID namespace that /proc belongs to, as the next two.
        state: one letter; Z is a zombie, X is all but gone.
        parent: pid of the parent, 0 when it is outside the namespace.
        session: pid of the session's leader, 0 when it is outside the namespace. A zombie still has one.
        flags: the kernel's own, PF_… of include/linux/sched.h.
        start_ticks: clock ticks from boot to its start.
        code_start: address of its program's text; 1 where we may not know, 0 while there is none.
    """

    pid: int
    state: str
    parent: int
    session: int
    flags: int
    start_ticks: int
    code_start: int

    @property
    def is_running(self) -> bool:
        """Whether it still executes, or could."""
        return self.state not in "ZXx"

    @property
    def is_between_programs(self) -> bool:
        """Whether it is in the middle of execve(2): the old program is gone, and the new one has no arguments yet.

        Measured on Linux 6.18: who spawns with vfork goes on already then; mostly for 40 µs, on a busy machine 45 ms.
        """
        return self.is_running and self.code_start == 0 and not self.flags & (_PF_KTHREAD | _PF_EXITING)


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
        flags=int(after[6]),
        start_ticks=int(after[19]),
        code_start=int(after[23]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """What the kernel says about a process; None when there is none."""
    text = _read(f"/proc/{pid}/stat", limit_bytes=_CHUNK_BYTES)
    return parse_stat(text) if text else None


def read_arguments(pid: int) -> tuple[bytes, ...]:
    """The arguments a process was started with; empty for zombies, kernel threads and what is gone.

    One that is in the middle of an exec is waited for, in this thread and not for long: it would be overlooked.
    """
    text = _arguments(pid)
    for _ in range(_EXEC_TRIES):
        found = None if text else read_stat(pid)
        if found is None or not found.is_between_programs:
            break
        time.sleep(_EXEC_PAUSE_S)
        text = _arguments(pid)
    text = text or _arguments(pid)  # it may have come out of the exec between two looks
    return tuple(text.removesuffix(b"\0").split(b"\0")) if text else ()


def _arguments(pid: int) -> bytes:
    return _read(f"/proc/{pid}/cmdline", limit_bytes=_ARGUMENTS_LIMIT_BYTES)


def descriptor_targets(pid: int) -> Iterator[str]:
    """What the open descriptors of a process lead to; nothing for a zombie and what is gone."""
    for path in _descriptors(pid):
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(path)


def has_terminal(pid: int) -> bool:
    """Whether a process has a pseudoterminal open, also one whose other side is closed; not so for a zombie."""
    for path in _descriptors(pid):
        with suppress(FileNotFoundError):  # closed meanwhile
            # Only what has a number for its name is looked at: whatever else is open may be of a disk that hangs.
            if _NUMBERED.search(os.readlink(path)) and os.major(os.stat(path).st_rdev) in _PTS_MAJORS:
                return True
    return False


def open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """What a process has open: what the link of each descriptor says, and what is behind it; nothing for a zombie.

    A descriptor of a device node that only names it (O_PATH, open(2)) opens no device, and is passed over. Measured on
    runsc 20240729: a sandbox keeps one of every file that a container has looked at below a bind mount.
    """
    for path in _descriptors(pid):
        with suppress(FileNotFoundError):  # closed meanwhile
            target, told = os.readlink(path), os.stat(path)
            if not (stat.S_ISCHR(told.st_mode) and _only_names(path)):
                yield target, told


def _descriptors(pid: int) -> list[str]:
    """The links of a process's open descriptors."""
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise


def _only_names(descriptor: str) -> bool:
    told = _read(descriptor.replace("/fd/", "/fdinfo/"), limit_bytes=_CHUNK_BYTES)
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
