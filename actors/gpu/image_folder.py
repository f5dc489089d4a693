"""A folder of an image, found on the host as a program in the container would find it: no link leads out of it.

`/usr/local/cuda` of NVIDIA's images is an absolute link; followed on the host it would be a folder of the host's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files

    from .hooks import CudaCompat


async def compat_folder(files: Files, rootfs: Path, compat: CudaCompat | None) -> str | None:
    """The image's folder of CUDA libraries that goes before the driver's own; None when there is none to go first."""
    if compat is None:
        return None
    try:
        names = await files.list_directory(await files.find_in(rootfs, compat.folder))
    except OSError:  # absent, or an image that nobody could look into either
        return None
    return compat.folder_for(names)
