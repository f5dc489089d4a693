"""What a program or a library needs to be loaded: a second reader agrees, and nothing broken is believed."""

import io
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from actors.gpu.elf import ElfError, Linkage, read_linkage
from actors.pause_elf import pause_elf
from tests.actors.memory_files import MemoryFiles
from tests.gpu.libraries import BASE, DYNAMIC_AT, NEEDED, NULL, STRINGS_AT, STRSZ, STRTAB, library, program

pytestmark = pytest.mark.anyio
FILE = Path("/file")
STRINGS = b"\0libc.so.6\0libm.so.6\0"


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def linkage(data):
    return await read_linkage(MemoryFiles({FILE: data}), FILE)


def second_opinion(data):
    elf = ELFFile(io.BytesIO(data))
    interpreters = [each.get_interp_name() for each in elf.iter_segments() if isinstance(each, InterpSegment)]
    sections = [each for each in elf.iter_segments() if isinstance(each, DynamicSegment)]
    needed = [vars(tag)["needed"] for each in sections for tag in each.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    return Linkage(interpreter=interpreters[0] if interpreters else None, needed=tuple(needed))


def files_of_this_machine():
    """The bytes of our interpreter and of some programs and libraries, by path."""
    folders = [Path("/usr/bin"), Path("/lib/x86_64-linux-gnu"), Path("/lib/aarch64-linux-gnu"), Path("/usr/lib64")]
    paths = [path for folder in folders for path in sorted(folder.glob("*"))[:60] if path.is_file()]
    found = {path: path.read_bytes() for path in [Path(sys.executable).resolve(), *paths]}
    return {path: data for path, data in found.items() if data[:6] == b"\x7fELF\x02\x01" and data[16] in {2, 3}}


async def test_a_second_reader_finds_the_same_in_programs_and_libraries_of_this_machine():
    found = files_of_this_machine()
    assert len(found) > 10
    assert {path: await linkage(data) for path, data in found.items()} == {
        path: second_opinion(data) for path, data in found.items()
    }


async def test_what_is_linked_statically_needs_nothing():
    assert await linkage(pause_elf("x86_64")) == Linkage(interpreter=None)


async def test_every_needed_library_is_read_in_order():
    dynamic = [(NEEDED, 1), (NEEDED, 11), (STRTAB, BASE + STRINGS_AT), (STRSZ, len(STRINGS)), (NULL, 0)]
    assert (await linkage(library(dynamic=dynamic, strings=STRINGS))).needed == ("libc.so.6", "libm.so.6")


INTERPRETER = b"/lib/ld-musl-x86_64.so.1\0"


async def test_a_programs_interpreter_is_read():
    assert await linkage(program(INTERPRETER)) == Linkage(interpreter="/lib/ld-musl-x86_64.so.1")


def cut(data, size_bytes):
    return data[:size_bytes]


BROKEN = {
    "no ELF": b"#!/bin/sh\n",
    "nothing": b"",
    "an object file": library(kind=1),
    "no interpreter's name": program(b"\0"),
    "an interpreter without an end": program(b"/lib/x"),
    "an interpreter that is no text": program(b"\xff\xff\0"),
    "cut in its dynamic section": cut(library(), DYNAMIC_AT + 8),
    "a needed library outside its segments": library(dynamic=[(NEEDED, 1 << 40), (STRTAB, BASE), (NULL, 0)]),
    "a needed library without strings": library(dynamic=[(NEEDED, 1), (NULL, 0)]),
    "a dynamic section without an end": library(dynamic=[(STRTAB, BASE)]),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
async def test_what_is_broken_is_not_believed(data):
    with pytest.raises(ElfError):
        await linkage(data)


async def test_a_file_that_cannot_be_read_is_an_error_of_the_system():
    with pytest.raises(FileNotFoundError):
        await read_linkage(MemoryFiles(), FILE)
