"""Reading a trace, a block of lines at a time: how long it is makes no difference to the memory that it takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from statemachine.problem import ProblemError
from statemachine.reasons import Reason

from .records import FORMAT, Header, Record
from .streams import at_line, blocks, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADER: Final = msgspec.json.Decoder(Header)
_RECORD: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)
_ANYTHING: Final = msgspec.json.Decoder(dict[str, Any])
_TWO_IN_A_LINE: Final = re.compile(rb"\}[ \t\r]*\{")
"""In a text this may stand, too: then each line is looked at by itself."""
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_trace(path: Path) -> tuple[Header, Iterator[Record]]:
    """A trace's header, and its records in their order, read while they are taken.

    The file is closed after the last record, or when the iterator is dropped.

    Raises, also while records are taken:
        ProblemError: UnreadableFile; InvalidTrace, with the number of the line; NewerFormat.
    """
    items = _items(path)
    header = cast("Header", next(items))
    return header, cast("Iterator[Record]", items)


def _items(path: Path) -> Iterator[Header | Record]:
    with opened(path) as file:
        number, at_s = 0, 0.0
        for whole in blocks(file, path, reason=Reason.INVALID_TRACE):
            block = whole
            if not number:
                line, _, block = whole.partition(b"\n")
                number = 1
                yield _header(line, path)
            for record in _decoded(block, path, number):
                number += 1
                if record.at_s < at_s:
                    message = f"it is at {record.at_s:g} s, and the line before it at {at_s:g} s"
                    raise _invalid(path, number, message)
                at_s = record.at_s
                yield record
        if not number:
            raise _invalid(path, 1, "there is no header, as the file is empty")


def _decoded(block: bytes, path: Path, number: int) -> Iterator[Record]:
    """The records of a block; `number` is that of the line before it."""
    count = block.count(b"\n") + (not block.endswith(b"\n") and block != b"")
    try:
        records = _RECORD.decode_lines(block)
    except _REFUSALS:
        records = []
    # All at once is fast. When it fails, or there is not one record in each line, it is looked for which line it is.
    if len(records) == count and not _TWO_IN_A_LINE.search(block):
        yield from records
        return
    for index, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            record = _RECORD.decode(line)
        except _REFUSALS as error:
            raise _invalid(path, number + index, _words(error)) from error
        yield record


def _header(line: bytes, path: Path) -> Header:
    try:
        given = _ANYTHING.decode(line)
        version = given.get("v")
        if given.get("kind") == Header.__struct_config__.tag and type(version) is int and version > FORMAT:
            message = f"the trace has format {version}; this version reads up to {FORMAT}"
            raise ProblemError(at_line(path, 1, message, reason=Reason.NEWER_FORMAT))
        if "v" not in given:
            raise _invalid(path, 1, "it is no header of a trace: there is no `v`")
        header = _HEADER.decode(line)
    except _REFUSALS as error:
        raise _invalid(path, 1, f"it is no header of a trace: {_words(error)}") from error
    if header.v < 1:
        raise _invalid(path, 1, f"there is no format {header.v}")
    return header


def _words(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    text = str(error)
    if not text:
        return "it cannot be read"
    return text if text.startswith("JSON") else f"{text[0].lower()}{text[1:]}"


def _invalid(path: Path, number: int, message: str) -> ProblemError:
    return ProblemError(at_line(path, number, message, reason=Reason.INVALID_TRACE))
