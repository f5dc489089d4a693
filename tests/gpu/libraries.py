"""Shared libraries for tests, written byte by byte: a header, two segments, a dynamic section and its strings."""

import struct

DYN = 3
NULL, STRTAB, STRSZ, SONAME, NEEDED = 0, 5, 10, 14, 1
STRINGS_AT = 0x200
DYNAMIC_AT = 0x100
BASE = 0x10000


def library(
    soname=b"libx.so.1",
    *,
    ident=b"\x7fELF\x02\x01\x01" + bytes(9),
    kind=DYN,
    entry_bytes=56,
    count=2,
    segments=None,
    dynamic=None,
    strings=None,
    table=64,
):
    """A library with this SONAME (None for none); every other argument makes it another one."""
    strings = b"\0" + (soname or b"") + b"\0" if strings is None else strings
    if dynamic is None:
        dynamic = [(NEEDED, 0), (STRTAB, BASE + STRINGS_AT), (STRSZ, len(strings))]
        dynamic += [(SONAME, 1)] if soname is not None else []
        dynamic += [(NULL, 0)]
    entries = b"".join(struct.pack("<qQ", tag, value % (1 << 64)) for tag, value in dynamic)
    whole = STRINGS_AT + len(strings)
    if segments is None:
        segments = [(1, 0, BASE, whole), (2, DYNAMIC_AT, BASE + DYNAMIC_AT, len(entries))]
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, kind, 62, 1, 0, table, 0, 0, 64, entry_bytes, count, 0, 0, 0)
    table_of = b"".join(
        struct.pack("<IIQQQQQQ", type_, 4, offset, address, address, size, size, 4096)
        for type_, offset, address, size in segments
    )
    return (header + table_of).ljust(DYNAMIC_AT, b"\0") + entries.ljust(STRINGS_AT - DYNAMIC_AT, b"\0") + strings


def program(interpreter):
    """A program that names this dynamic linker (its NUL included) and needs nothing else."""
    segments = [(1, 0, BASE, 0x1000), (3, STRINGS_AT, BASE + STRINGS_AT, len(interpreter))]
    return library(kind=2, segments=segments, strings=interpreter)
