"""The SONAME reader: a second reader agrees on this machine's libraries, and nothing broken is believed."""

import io
from pathlib import Path

import anyio
import pytest
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.gpu.elf import ElfError, read_soname, soname_of
from actors.pause_elf import pause_elf
from tests.actors.memory_files import MemoryFiles
from tests.gpu.libraries import BASE, DYNAMIC_AT, NULL, SONAME, STRINGS_AT, STRSZ, STRTAB, library

GOOD = library()
LIBRARIES_MAX = 150


def libraries():
    """Shared libraries of this machine, and what merely has such a name."""
    places = [Path("/lib"), Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")]
    found = {path for place in places for path in place.glob("*/*.so*") if path.is_file() and not path.is_symlink()}
    return sorted(found)[:LIBRARIES_MAX]


def second_opinion(data):
    """What another reader says; ElfError where that is no library for us."""
    try:
        elf = ELFFile(io.BytesIO(data))
        if elf.elfclass != 64 or not elf.little_endian or elf["e_type"] != "ET_DYN":
            return ElfError
        dynamic = next((each for each in elf.iter_segments() if isinstance(each, DynamicSegment)), None)
        if dynamic is None:
            return ElfError
        tags = [tag for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_SONAME"]
        return vars(tags[-1])["soname"] if tags else None
    except ELFError:
        return ElfError


def opinion(data):
    try:
        return soname_of(data)
    except ElfError:
        return ElfError


def test_a_second_reader_finds_the_same_in_the_libraries_of_this_machine():
    found = {path: path.read_bytes() for path in libraries()}
    assert any(opinion(data) not in (None, ElfError) for data in found.values())
    differing = [(path, opinion(data), second_opinion(data)) for path, data in found.items()]
    assert [each for each in differing if each[1] != each[2]] == []


@pytest.mark.parametrize("soname", [b"libx.so.1", b"l", b"x" * 255, None])
def test_a_second_reader_finds_the_same_in_a_library_of_ours(soname):
    expected = None if soname is None else soname.decode()
    assert soname_of(library(soname)) == expected
    assert second_opinion(library(soname)) == expected


def test_of_a_large_file_only_a_few_bytes_are_read():
    class Counting(MemoryFiles):
        async def read_from(self, path, *, offset_bytes, limit_bytes):
            reads.append(limit_bytes)
            return await super().read_from(path, offset_bytes=offset_bytes, limit_bytes=limit_bytes)

    reads: list[int] = []
    path = Path("/driver/libcuda.so.570.1")
    files = Counting({path: GOOD + bytes(10 << 20)})
    assert anyio.run(read_soname, files, path) == "libx.so.1"
    assert len(reads) == 4
    assert sum(reads) < 1024


def test_a_file_that_is_not_there_is_the_files_own_error():
    with pytest.raises(FileNotFoundError):
        anyio.run(read_soname, MemoryFiles(), Path("/x.so"))


def dynamic(*entries):
    return [*entries, (NULL, 0)]


ODD = {
    "nothing": (b"", "no ELF"),
    "a text": (b"INPUT ( /lib/libc.so.6 )\n", "no ELF"),
    "half a header": (GOOD[:40], "header"),
    "32 bits": (library(ident=b"\x7fELF\x01\x01\x01" + bytes(9)), "64 bits"),
    "big-endian": (library(ident=b"\x7fELF\x02\x02\x01" + bytes(9)), "little-endian"),
    "a program": (library(kind=2), "no shared object"),
    "the pause program": (pause_elf("x86_64"), "no shared object"),
    "no segments": (library(count=0), "0 entries"),
    "too many segments": (library(count=0xFFFF), "65535 entries"),
    "segments of another size": (library(entry_bytes=32), "of 32 bytes"),
    "a table beyond the end": (library(table=1 << 40), "table of segments"),
    "half a table": (GOOD[:100], "table of segments"),
    "no dynamic section": (library(segments=[(1, 0, BASE, 999), (4, 0, 0, 0)]), "no dynamic"),
    "a huge dynamic section": (library(segments=[(1, 0, BASE, 999), (2, 0, 0, 1 << 40)]), "dynamic section has"),
    "a dynamic section beyond the end": (library(segments=[(1, 0, BASE, 999), (2, 1 << 62, 0, 64)]), "dynamic section"),
    "no end mark": (library(dynamic=[(STRTAB, 1)] * 4), "no end"),
    "an empty dynamic section": (library(segments=[(1, 0, BASE, 999), (2, 0, 0, 0)]), "no end"),
    "no strings": (library(dynamic=dynamic((SONAME, 1))), "no table of strings"),
    "no size of strings": (library(dynamic=dynamic((SONAME, 1), (STRTAB, BASE))), "no table of strings"),
    "a name outside the strings": (
        library(dynamic=dynamic((SONAME, 99), (STRTAB, BASE + STRINGS_AT), (STRSZ, 11))),
        "outside",
    ),
    "strings in no segment": (library(dynamic=dynamic((SONAME, 1), (STRTAB, 5), (STRSZ, 11))), "no segment"),
    "strings beyond all memory": (
        library(dynamic=dynamic((SONAME, 1), (STRTAB, (1 << 64) - 1), (STRSZ, (1 << 64) - 1))),
        "no segment",
    ),
    "an empty name": (library(b""), "empty"),
    "a name without an end": (library(strings=b"\0libx.so.1"), "no end"),
    "a name that is too long": (library(b"x" * 256), "longer than 255"),
    "a name that is no text": (library(b"lib\xff.so"), "SONAME is b'lib"),
    "strings beyond the end": (library()[:STRINGS_AT], "no end"),
}


@pytest.mark.parametrize(("data", "why"), ODD.values(), ids=ODD)
def test_a_broken_library_is_a_reason(data, why):
    with pytest.raises(ElfError, match=why):
        soname_of(data)


def test_strings_are_looked_for_where_their_segment_is_in_the_file():
    elsewhere = [(1, 0, 0x5000, 0x80), (1, DYNAMIC_AT, 0x9000, 0x800), (2, DYNAMIC_AT, 0x9000, 64)]
    entries = dynamic((SONAME, 1), (STRTAB, 0x9000 + STRINGS_AT - DYNAMIC_AT), (STRSZ, 11))
    moved = library(count=3, segments=elsewhere, dynamic=entries)
    assert soname_of(moved) == "libx.so.1"
    assert second_opinion(moved) == "libx.so.1"


def test_of_two_sonames_the_last_counts_as_for_the_linker():
    strings = b"\0first\0second\0"
    entries = dynamic((SONAME, 1), (SONAME, 7), (STRTAB, BASE + STRINGS_AT), (STRSZ, len(strings)))
    assert soname_of(library(strings=strings, dynamic=entries)) == "second"


@given(st.data())
@settings(max_examples=300)
def test_a_library_with_any_bytes_changed_is_read_or_refused(data):
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 6))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    for candidate in (bytes(changed), bytes(changed[:cut])):
        try:
            found = soname_of(candidate)
        except ElfError:
            continue
        assert found is None or 0 < len(found) <= 255


def test_the_library_of_these_tests_is_one():
    assert GOOD[DYNAMIC_AT:STRINGS_AT].count(bytes([SONAME, 0, 0, 0, 0, 0, 0, 0])) == 1
    assert opinion(GOOD) == second_opinion(GOOD) == "libx.so.1"
