"""Whether the disk that a snapshot is written to is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files

FULL_BELOW_BYTES: Final = 1 << 20
"""A disk with less room than that after a failed checkpoint is taken for its cause; even the smallest one is larger."""


async def is_full(files: Files, directory: Path) -> bool:
    """Look; what cannot be asked is not called full."""
    try:
        return await files.free_bytes(directory) < FULL_BELOW_BYTES
    except OSError:
        return False
