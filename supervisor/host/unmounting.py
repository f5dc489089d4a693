"""What is mounted below a directory of ours, taken away: what is in it stays as it is, and is no longer seen there.

Source: proc_pid_mountinfo(5), umount2(2) of man-pages 6.9.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from supervisor.doctor.mounts import mounts_of

if TYPE_CHECKING:
    from supervisor.host.beneath import Beneath

_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8
_GONE: Final = frozenset({errno.EINVAL, errno.ENOENT})
"""Nothing is mounted there any more."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def unmount_below(beneath: Beneath, path: Path) -> None:
    """Unmount whatever is mounted below a directory, the last first; nothing is as well.

    No link below our root is followed: what is mounted where one leads to is not ours.

    Raises:
        PermissionError: it is below no root; or unmounting is not allowed.
        OSError: something stays mounted.
    """
    root, names = beneath.split(path)
    above = Path(os.path.realpath(root)).joinpath(*names)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [mount.path for mount in mounts_of(file.read())]
    for point in reversed(points):
        if Path(point) != above and Path(point).is_relative_to(above):
            _unmount(point)


def _unmount(point: str) -> None:
    if _libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        code = ctypes.get_errno()
        if code not in _GONE:
            raise OSError(code, os.strerror(code), point)
