"""What the dynamic linker reads of a file, its SONAME first, from the few bytes of the file that tell it.

Driver libraries are up to hundreds of MiB large, so none is read whole: three or four small reads go to the header, the
table of segments, the dynamic section and its strings. The reader is a generator that asks for bytes and is handed
them; it works from a file of the port and from bytes alike. What a file says of itself is believed only within bounds.

Only what gVisor runs is read: 64 bits, little-endian.

Source: System V ABI, "Object Files" (ELF-64) and "Dynamic Linking".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from statemachine.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from actors.ports import Files

_T = TypeVar("_T")

SONAME_BYTES_MAX: Final = 255
_SEGMENTS_MAX: Final = 256
_DYNAMIC_BYTES_MAX: Final = 64 << 10
_EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR: Final = struct.Struct("<IIQQQQQQ")
_DYN: Final = struct.Struct("<qQ")
_MAGIC: Final = b"\x7fELF"
_ELFCLASS64, _ELFDATA2LSB = 2, 1
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 0, 1, 5, 10, 14
_LIBRARY_KINDS: Final = frozenset({_ET_DYN})
_PROGRAM_KINDS: Final = frozenset({_ET_EXEC, _ET_DYN})
_PATH_BYTES_MAX: Final = 4096
_NEEDED_MAX: Final = 256


class ElfError(ValueError):
    """Raised when a file is no library or program that can be read; the message says what is wrong with it."""


@attrs.frozen
class _Want:
    """Bytes that the reader needs."""

    offset_bytes: int
    size_bytes: int


@attrs.frozen
class _Segment:
    """Where bytes of the file come to stand in memory."""

    type: int
    offset_bytes: int
    address: int
    file_bytes: int


@attrs.frozen(kw_only=True)
class Linkage:
    """What a program or a library needs to be loaded; both are empty for one that is linked statically.

    Attributes:
        interpreter: the path of the dynamic linker that a program names; most libraries name none.
        needed: the SONAMEs of the libraries that it needs.
    """

    interpreter: str | None
    needed: tuple[str, ...] = ()


def soname_of(data: bytes) -> str | None:
    """The SONAME in a file's bytes; None when it has none.

    Raises:
        ElfError: it is no shared library that can be read.
    """
    reader = _reader()
    try:
        want = next(reader)
        while True:
            want = reader.send(data[want.offset_bytes : want.offset_bytes + want.size_bytes])
    except StopIteration as ended:
        found: str | None = ended.value
        return found


async def read_soname(files: Files, path: Path) -> str | None:
    """The SONAME of a library; None when it has none.

    Raises:
        ElfError: it is no shared library that can be read.
        OSError: the file cannot be read.
    """
    return await _told_by(_reader(), files, path)


async def read_linkage(files: Files, path: Path) -> Linkage:
    """What a program or a library needs to be loaded.

    Raises:
        ElfError: it is neither, or cannot be read as one.
        OSError: the file cannot be read.
    """
    return await _told_by(_linkage_reader(), files, path)


async def _told_by(reader: Generator[_Want, bytes, _T], files: Files, path: Path) -> _T:
    try:
        want = next(reader)
        while True:
            want = reader.send(await files.read_from(path, offset_bytes=want.offset_bytes, limit_bytes=want.size_bytes))
    except StopIteration as ended:
        found: _T = ended.value
        return found


def _reader() -> Generator[_Want, bytes, str | None]:
    count, table = _checked_header((yield _Want(0, _EHDR.size)), _LIBRARY_KINDS)
    segments = _segments((yield _Want(table, count * _PHDR.size)), count)
    dynamic = next((segment for segment in segments if segment.type == _PT_DYNAMIC), None)
    if dynamic is None:
        raise ElfError("it has no dynamic section")
    _require_bounded(dynamic)
    entries = dict(_tags((yield _Want(dynamic.offset_bytes, dynamic.file_bytes)), dynamic.file_bytes))
    if _DT_SONAME not in entries:
        return None
    if _DT_STRTAB not in entries or _DT_STRSZ not in entries:
        raise ElfError("it has a SONAME and no table of strings")
    begin, left = entries[_DT_SONAME], entries[_DT_STRSZ] - entries[_DT_SONAME]
    if left <= 0:
        raise ElfError("its SONAME is outside its table of strings")
    offset_bytes = _offset(segments, entries[_DT_STRTAB] + begin)
    return _string((yield _Want(offset_bytes, min(left, SONAME_BYTES_MAX + 1))), "SONAME")


def _linkage_reader() -> Generator[_Want, bytes, Linkage]:
    count, table = _checked_header((yield _Want(0, _EHDR.size)), _PROGRAM_KINDS)
    segments = _segments((yield _Want(table, count * _PHDR.size)), count)
    interpreter = None
    for segment in segments:
        if segment.type == _PT_INTERP:
            size_bytes = min(segment.file_bytes, _PATH_BYTES_MAX)
            interpreter = _string((yield _Want(segment.offset_bytes, size_bytes)), "interpreter")
    dynamic = next((segment for segment in segments if segment.type == _PT_DYNAMIC), None)
    if dynamic is None:
        return Linkage(interpreter=interpreter)
    _require_bounded(dynamic)
    tags = _tags((yield _Want(dynamic.offset_bytes, dynamic.file_bytes)), dynamic.file_bytes)
    names = [value for tag, value in tags if tag == _DT_NEEDED]
    table_address = dict(tags).get(_DT_STRTAB)
    if names and table_address is None:
        raise ElfError("it needs libraries and has no table of strings")
    if len(names) > _NEEDED_MAX:
        raise ElfError(f"it needs {len(names)} libraries")
    needed: list[str] = []
    for name in names:
        offset_bytes = _offset(segments, (table_address or 0) + name)
        needed.append(_string((yield _Want(offset_bytes, SONAME_BYTES_MAX + 1)), "needed library"))
    return Linkage(interpreter=interpreter, needed=tuple(needed))


def _checked_header(data: bytes, kinds: frozenset[int]) -> tuple[int, int]:
    """The number of segments and where their table is."""
    if data[:4] != _MAGIC:
        raise ElfError("it is no ELF file")
    _require(data, _EHDR.size, "header")
    ident, kind, _, _, _, table, _, _, _, entry_bytes, count, _, _, _ = _EHDR.unpack(data)
    if ident[4] != _ELFCLASS64 or ident[5] != _ELFDATA2LSB:
        raise ElfError("it is not for 64 bits, little-endian")
    if kind not in kinds:
        raise ElfError("it is no shared object" if kinds == _LIBRARY_KINDS else "it is no program and no shared object")
    if entry_bytes != _PHDR.size or not 0 < count <= _SEGMENTS_MAX:
        raise ElfError(f"its table of segments has {count} entries of {entry_bytes} bytes")
    return count, table


def _segments(data: bytes, count: int) -> list[_Segment]:
    _require(data, count * _PHDR.size, "table of segments")
    return [
        _Segment(type=kind, offset_bytes=offset, address=address, file_bytes=file_bytes)
        for kind, _, offset, address, _, file_bytes, _, _ in _PHDR.iter_unpack(data)
    ]


def _require_bounded(dynamic: _Segment) -> None:
    if dynamic.file_bytes > _DYNAMIC_BYTES_MAX:
        raise ElfError(f"its dynamic section has {dynamic.file_bytes} bytes")


def _tags(data: bytes, size_bytes: int) -> list[tuple[int, int]]:
    """The dynamic section up to its end mark. Of a tag that should stand once the last counts, as for the linker."""
    _require(data, size_bytes, "dynamic section")
    found: list[tuple[int, int]] = []
    for tag, value in _DYN.iter_unpack(data[: size_bytes - size_bytes % _DYN.size]):
        if tag == _DT_NULL:
            return found
        found.append((tag, value))
    raise ElfError("its dynamic section has no end")


def _offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.type == _PT_LOAD and segment.address <= address < segment.address + segment.file_bytes:
            return segment.offset_bytes + address - segment.address
    raise ElfError("its strings are in no segment")


def _string(data: bytes, what: str) -> str:
    name, end, _ = data.partition(b"\0")
    if not end or not name:
        raise ElfError(f"its {what} is empty, has no end or is longer than {max(len(data) - 1, 0)} bytes")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError as error:
        raise ElfError(f"its {what} is {one_line(repr(name), 80)}") from error


def _require(data: bytes, size_bytes: int, what: str) -> None:
    if len(data) != size_bytes:
        raise ElfError(f"it ends within its {what}")
