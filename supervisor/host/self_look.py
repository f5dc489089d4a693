"""What the kernel says about our own process, looked at once before anything is held.

Nothing is changed by it. That we become a subreaper is tried, and taken back. System calls are tried with what no
kernel can do: one that would do them says so (EFAULT, ESRCH), and a seccomp filter refuses them all the same.

Source: proc_pid_status(5), prctl(2), pidfd_open(2), pidfd_send_signal(2) of man-pages 6.9.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from pathlib import Path
from typing import Final

from supervisor.host import procfs
from supervisor.host.reaper import can_adopt_orphans
from supervisor.host.surroundings import FILES_MAX
from supervisor.self_check import SelfFacts

PROC: Final = Path("/proc")
_TRIED: Final[dict[str, tuple[int | None, ...]]] = {
    "mount": (None, None, None, 0, None),
    "umount2": (None, 0),
    "pivot_root": (None, None),
    "chroot": (None,),
    "ptrace": (3, 0, None, None),  # PTRACE_PEEKUSER of no process
}
"""Measured on runsc 20240729: without any of these no sandbox starts."""
_REFUSED: Final = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})

_libc: Final = ctypes.CDLL(None, use_errno=True)


def look_at_ourselves(proc: Path = PROC) -> SelfFacts:
    """Gather the facts."""
    status = _status(proc)
    pids = None if status is None else tuple(map(int, status.get("NSpid", "").split()))
    capabilities = status.get("CapEff") if status else None
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return SelfFacts(
        pid=os.getpid(),
        is_root=os.geteuid() == 0,
        adopts_orphans=os.getpid() == 1 or can_adopt_orphans(),
        proc_pids=pids,
        lists_children=procfs.has_children_files(),
        pidfd_fault=_pidfd_fault(),
        refused_calls=tuple(name for name, arguments in _TRIED.items() if _is_refused(name, arguments)),
        capabilities=None if capabilities is None else int(capabilities, 16),
        files_max=FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX),
    )


def _status(proc: Path) -> dict[str, str] | None:
    """The lines of our own status; empty when this /proc does not know us, None when there is none."""
    if not (proc / "self").is_symlink():
        return None
    try:
        text = (proc / "self" / "status").read_text("utf-8", "replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _is_refused(name: str, arguments: tuple[int | None, ...]) -> bool:
    call = getattr(_libc, name, None)
    if call is None:
        return False  # this C library has it under no name
    ctypes.set_errno(0)
    return call(*arguments) == -1 and ctypes.get_errno() in _REFUSED


def _pidfd_fault() -> str:
    try:
        fd = os.pidfd_open(os.getpid())
    except OSError as error:
        return f"pidfd_open says {error.strerror}"
    try:
        signal.pidfd_send_signal(fd, 0)
    except OSError as error:
        return f"pidfd_send_signal says {error.strerror}"
    finally:
        os.close(fd)
    return ""
