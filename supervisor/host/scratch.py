"""Scratch places for commands that try things out: a directory that goes away, and a root filesystem in it."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

APPLETS: Final = ("sh", "sleep", "echo", "cat", "true", "false", "kill", "ls", "date", "test")
MOUNT_POINTS: Final = ("proc", "sys", "dev", "tmp", "etc", "root")


@contextmanager
def scratch_directory(prefix: str) -> Iterator[Path]:
    """A fresh directory 0700, removed with all that is in it on leaving."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def make_busybox_rootfs(rootfs: Path, busybox: Path) -> None:
    """Make a minimal root filesystem: a static busybox with links for a few applets, and empty mount points.

    Raises:
        OSError: it cannot be written.
    """
    (rootfs / "bin").mkdir(parents=True)
    for name in MOUNT_POINTS:
        (rootfs / name).mkdir()
    shutil.copyfile(busybox, rootfs / "bin" / "busybox")
    (rootfs / "bin" / "busybox").chmod(0o755)
    for applet in APPLETS:
        (rootfs / "bin" / applet).symlink_to("busybox")
    for directory in (rootfs, rootfs / "bin", *(rootfs / name for name in MOUNT_POINTS)):
        directory.chmod(0o755)
