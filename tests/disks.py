"""File systems of a size that a test fills."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk(directory: Path, size: int | str) -> Iterator[Path]:
    """A file system of that size (bytes, or as tmpfs(5) has it), mounted over a directory that may be absent."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        # Lazily: a sandbox may still hold the files that it could not write, a moment after its runsc said so.
        subprocess.run(["umount", "--lazy", directory], check=True)
