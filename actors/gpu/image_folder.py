"""A folder of an image, found on the host as a program in the container would find it: no link leads out of it.

`/usr/local/cuda` of NVIDIA's images is an absolute link; followed on the host it would be a folder of the host's.

Source: path_resolution(7), symlink(7).
"""

from __future__ import annotations

import errno
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files

    from .hooks import CudaCompat

_LINKS_MAX: Final = 40


async def compat_folder(files: Files, rootfs: Path, compat: CudaCompat | None) -> str | None:
    """The image's folder of CUDA libraries that goes before the driver's own; None when there is none to go first."""
    if compat is None:
        return None
    try:
        names = await files.list_directory(await find_in_image(files, rootfs, compat.folder))
    except OSError:  # absent, or an image that nobody could look into either
        return None
    return compat.folder_for(names)


async def find_in_image(files: Files, rootfs: Path, folder: str) -> Path:
    """Where on the host an image has a folder; it need not be there.

    Raises:
        OSError: ELOOP after too many links; what reading one meets.
    """
    pending = _names(folder)
    here: list[str] = []
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            here = here[:-1]
            continue
        target = await files.read_link(rootfs.joinpath(*here, name))
        if target is None:
            here.append(name)
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, "Too many levels of symbolic links", folder)
        if target.startswith("/"):
            here.clear()
        pending += _names(target)
    return rootfs.joinpath(*here)


def _names(path: str) -> list[str]:
    """The components, the last one first."""
    return [name for name in reversed(PurePosixPath(path).parts) if not name.startswith("/")]
