"""A file that a command writes piece by piece: it is there when it is whole, and not before."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_KEPT_BYTES: Final = 200
"""Of its name, in that of the temporary file: both are to be at most 255 bytes long."""


@contextmanager
def growing(path: Path) -> Iterator[BinaryIO]:
    """Somewhere to write to, for its owner alone; `-` is stdout. It takes its name on leaving, but not by an error.

    What is no regular file, such as a pipe, is written to as it is.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    if path == Path("-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # a link stays one
    kept = os.fsdecode(os.fsencode(path.name)[:_KEPT_BYTES])
    temporary = path.with_name(f".{kept}.{secrets.token_hex(8)}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
