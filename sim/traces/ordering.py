"""Records in the order of their times, however many there are and in whatever order they come."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from statemachine.reasons import Reason
from supervisor.host.scratch import scratch_directory

from .records import Record, Scalar, WorkerAdd
from .streams import blocks, made, opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

AT_ONCE: Final = 200_000
"""Records that are put in order in memory; of more, each such part is written down and all are merged."""
_PART_BYTES: Final = 16 << 10
"""Of each part that is merged so much is in memory: there may be hundreds of them."""
_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)
_ENCODER: Final = msgspec.json.Encoder()


def in_order(records: Iterable[Record], *, at_once: int = AT_ONCE) -> Iterator[Record]:
    """The records by their times; of those at one time workers come first, and else who came first.

    All are taken before the first one is given.

    Raises:
        ProblemError: what the records raise; OutputUnwritable: parts of them cannot be written down.
    """
    rest = iter(records)
    part = sorted(islice(rest, at_once), key=_place)
    following = next(rest, None)
    if following is None:
        yield from part
        return
    with scratch_directory("greenroom-trace-") as directory:
        parts: list[Path] = []
        while part:
            parts.append(directory / f"{len(parts)}.jsonl")
            _keep(parts[-1], part)
            taken = [] if following is None else [following, *islice(rest, at_once - 1)]
            part, following = sorted(taken, key=_place), next(rest, None)
        del part
        # Merging is stable: of those that are alike, who is in the earlier part came first.
        yield from heapq.merge(*map(_kept, parts), key=_place)


def _place(record: Record) -> tuple[float, bool]:
    return record.at_s, not isinstance(record, WorkerAdd)


def _keep(path: Path, records: list[Record]) -> None:
    with made(path) as write:
        write(_ENCODER.encode_lines(records))


def _kept(path: Path) -> Iterator[Record]:
    with opened(path) as file:
        for block in blocks(file, path, reason=Reason.INVALID_TRACE, at_once_bytes=_PART_BYTES):
            yield from _DECODER.decode_lines(block)


def from_zero(records: Iterable[Record], notes: dict[str, Scalar]) -> Iterator[Record]:
    """The records with times that begin at 0; `beganAt_s` in the notes is when they began before."""
    rest = iter(records)
    first = next(rest, None)
    if first is None:
        return
    notes["beganAt_s"] = first.at_s
    yield msgspec.structs.replace(first, at_s=0.0)
    for record in rest:
        # To the microsecond: the difference of two sums has digits that mean nothing.
        yield msgspec.structs.replace(record, at_s=round(record.at_s - first.at_s, 6))
