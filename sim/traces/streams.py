"""Files as streams of bytes, compressed or not as the end of their names says, and blocks of whole lines of them."""

from __future__ import annotations

import gzip
import sys
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label
from supervisor.host.growing import growing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LINE_BYTES_MAX: Final = 256 << 10
"""Of a trace and of any file that is imported."""
BLOCK_BYTES: Final = 256 << 10
GZIP: Final = ".gz"
ZSTD: Final = (".zst", ".zstd")
GZIP_LEVEL: Final = 6
ZSTD_LEVEL: Final = 3

Broken: Final = (EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError)
"""What a decompressor raises for bytes that are not its own."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file.

    Raises:
        ProblemError: UnreadableFile.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise ProblemError(_unreadable(path, error)) from error
    with file:
        if path.suffix == GZIP:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast("BinaryIO", unpacked)
        elif path.suffix in ZSTD:
            with zstd.ZstdFile(file) as unsqueezed:
                yield cast("BinaryIO", unsqueezed)
        else:
            yield file


@contextmanager
def made(path: Path) -> Iterator[Callable[[bytes], object]]:
    """What takes the bytes of a file, which is there once all of them are; the same bytes make the same file.

    Raises:
        ProblemError: OutputUnwritable.
    """
    try:
        with growing(path) as file:
            if path.suffix == GZIP:
                # Neither a name nor a time in it: they would differ from run to run.
                with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
                    yield packed.write
            elif path.suffix in ZSTD:
                with zstd.ZstdFile(file, "wb", level=ZSTD_LEVEL) as squeezed:
                    yield squeezed.write
            else:
                yield file.write
    except BrokenPipeError:
        raise  # nobody reads it any more
    except OSError as error:
        message = f"{file_label(str(path))} cannot be written: {error.strerror or error}"
        raise ProblemError(_problem(Reason.OUTPUT_UNWRITABLE, str(path), message)) from error


def blocks(file: BinaryIO, path: Path, *, reason: Reason, at_once_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Blocks of whole lines; only what ends the file may have no newline.

    Args:
        file: the open file.
        path: its name, for problems.
        reason: of a problem with what is in it.
        at_once_bytes: how much is read at a time, at most as much as a line may have.

    Raises:
        ProblemError: UnreadableFile; with the reason that is given: a line is too long, the file is damaged.
    """
    number, carried = 1, b""
    try:
        while chunk := file.read(at_once_bytes):
            block = carried + chunk
            first = block.find(b"\n")
            if (len(block) if first < 0 else first) > LINE_BYTES_MAX:
                raise ProblemError(at_line(path, number, f"it is over {LINE_BYTES_MAX} bytes long", reason=reason))
            end = block.rfind(b"\n") + 1
            carried = block[end:]
            if end:
                yield block[:end]
                number += block.count(b"\n", 0, end)
    except Broken as error:
        message = f"from here on it cannot be unpacked: {error}"
        raise ProblemError(at_line(path, number, message, reason=reason)) from error
    except OSError as error:
        raise ProblemError(_unreadable(path, error)) from error
    if carried:
        yield carried


def lines(file: BinaryIO, path: Path, *, reason: Reason) -> Iterator[bytes]:
    """Each line of a file, without its end.

    Raises:
        ProblemError: as `blocks`.
    """
    for block in blocks(file, path, reason=reason):
        yield from block.removesuffix(b"\n").split(b"\n")


def at_line(path: Path, number: int, message: str, *, reason: Reason) -> Problem:
    """A problem with one line of a file; in a table, lines are its rows."""
    label = file_label(str(path))
    word = "row" if reason is Reason.INVALID_ROW else "line"
    return _problem(reason, f"{label}:{number}", f"{label}: {word} {number}: {message}")


def _unreadable(path: Path, error: OSError) -> Problem:
    message = f"{file_label(str(path))} cannot be read: {error.strerror or error}"
    return _problem(Reason.UNREADABLE_FILE, str(path), message)


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=subject, message=message)
