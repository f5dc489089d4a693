"""The file that Kubernetes reads when a container has ended (`terminationMessagePath`).

It is mounted there as a file of its own, so that it cannot be replaced: it is written in place, at once, at the end.

Source: Kubernetes, "Determine the Reason for Pod Failure": /dev/termination-log unless the container says otherwise.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

USUAL: Final = Path("/dev/termination-log")


def find_termination_log(given: Path | None) -> Path | None:
    """Where to write: the file that was named, or the usual one where Kubernetes has made it, or nowhere."""
    if given is not None:
        return given
    return USUAL if USUAL.is_file() else None


def write_termination_log(path: Path, data: bytes) -> None:
    """Write it, in place of what is there.

    Raises:
        OSError: it cannot be written; EINVAL when it is no regular file.
    """
    # Not to be waited for, should a fifo stand there; and through no link, since we are root.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        file.truncate()
        file.write(data)
