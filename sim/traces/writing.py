"""Writing a trace, a thousand lines at a time; the same records make the same bytes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from .streams import made

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .records import Header, Record

_ENCODER: Final = msgspec.json.Encoder()
_AT_ONCE: Final = 1000


def write_trace(path: Path, header: Header, records: Iterable[Record]) -> int:
    """Write a trace and return how many records it has. It is there when it is whole; `-` is stdout.

    Raises:
        ProblemError: OutputUnwritable; and what the records raise, after which nothing is there.
        ValueError: the times of the records fall.
    """
    count = 0
    with made(path) as write:
        for piece, records_in_it in _pieces(header, records):
            write(piece)
            count += records_in_it
    return count


def as_bytes(header: Header, records: Iterable[Record]) -> bytes:
    """The same in memory, uncompressed: for small ones."""
    return b"".join(piece for piece, _ in _pieces(header, records))


def _pieces(header: Header, records: Iterable[Record]) -> Iterator[tuple[bytes, int]]:
    rest, at_s = iter(records), 0.0
    first = list(islice(rest, _AT_ONCE))  # what makes the records may not know before the first what the header says
    yield _ENCODER.encode(header) + b"\n", 0
    while first:
        for record in first:
            if record.at_s < at_s:
                raise ValueError(f"{record} comes after {at_s} s")
            at_s = record.at_s
        yield _ENCODER.encode_lines(first), len(first)
        first = list(islice(rest, _AT_ONCE))
