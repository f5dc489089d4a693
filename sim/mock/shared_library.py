"""An ELF shared library that has a name and nothing else: what stands in for the libraries of a driver.

Readers of the SONAME take it for a library, and the dynamic linker loads it; it defines no symbol.

Source: System V ABI, "Object Files" and "Dynamic Linking" (ELF-64).
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MACHINES: Final[Mapping[str, int]] = MappingProxyType({"x86_64": 62, "aarch64": 183})
"""`uname -m` -> e_machine (EM_X86_64, EM_AARCH64); gVisor runs on no other."""

_EHDR_BYTES: Final = 64
_PHDR_BYTES: Final = 56
_SHDR_BYTES: Final = 64
_SYM_BYTES: Final = 24
_DYN_BYTES: Final = 16
_PAGE_BYTES: Final = 0x1_0000  # the largest page of either architecture
_ALIGN_BYTES: Final = 8

_ET_DYN: Final = 3
_EV_CURRENT: Final = 1
_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_PT_GNU_STACK: Final = 0x6474_E551
_PF_READ_WRITE: Final = 6
_SHT_STRTAB: Final = 3
_SHT_HASH: Final = 5
_SHT_DYNAMIC: Final = 6
_SHT_DYNSYM: Final = 11
_SHF_WRITE_ALLOC: Final = 3
_DT_NULL: Final = 0
_DT_HASH: Final = 4
_DT_STRTAB: Final = 5
_DT_SYMTAB: Final = 6
_DT_STRSZ: Final = 10
_DT_SYMENT: Final = 11
_DT_SONAME: Final = 14
_DYNAMIC_ENTRIES: Final = 7

_SEGMENTS: Final = 3
_NAMES: Final = ("", ".hash", ".dynsym", ".dynstr", ".dynamic", ".shstrtab")
_DYNSTR: Final = _NAMES.index(".dynstr")
_DYNSYM: Final = _NAMES.index(".dynsym")
_ONE_EMPTY_BUCKET: Final = struct.pack(
    "<4I", 1, 1, 0, 0
)  # one bucket, one chain: the symbol that every table begins with


@attrs.frozen
class _Section:
    """What a section header says; in this library addresses are offsets in the file.

    Attributes:
        name: its offset among the sections' names.
        kind: sh_type.
        flags: sh_flags.
        offset: where it begins.
        size_bytes: of its content.
        link: the section that holds its strings or symbols.
        info: for symbols, the number of the first one that is not local.
        entry_bytes: of one entry of a table.
    """

    name: int = 0
    kind: int = 0
    flags: int = 0
    offset: int = 0
    size_bytes: int = 0
    link: int = 0
    info: int = 0
    entry_bytes: int = 0

    def header(self) -> bytes:
        address = self.offset if self.flags else 0
        return struct.pack(
            "<IIQQQQIIQQ",
            self.name,
            self.kind,
            self.flags,
            address,
            self.offset,
            self.size_bytes,
            self.link,
            self.info,
            _ALIGN_BYTES if self.kind else 0,
            self.entry_bytes,
        )


def shared_library(soname: str, machine: str) -> bytes:
    """The bytes of a library with this SONAME for a machine as `uname -m` names it.

    Raises:
        KeyError: there is no such machine in `MACHINES`.
    """
    dynstr = b"\0" + soname.encode() + b"\0"
    shstrtab = "\0".join(_NAMES).encode() + b"\0"
    begin = _EHDR_BYTES + _SEGMENTS * _PHDR_BYTES
    sizes = (len(_ONE_EMPTY_BUCKET), _SYM_BYTES, len(dynstr), _DYNAMIC_ENTRIES * _DYN_BYTES, len(shstrtab))
    hash_at, symbols_at, strings_at, dynamic_at, names_at, headers_at = _offsets(begin, sizes)
    dynamic = b"".join(
        struct.pack("<qQ", tag, value)
        for tag, value in (
            (_DT_SONAME, 1),
            (_DT_HASH, hash_at),
            (_DT_STRTAB, strings_at),
            (_DT_SYMTAB, symbols_at),
            (_DT_STRSZ, len(dynstr)),
            (_DT_SYMENT, _SYM_BYTES),
            (_DT_NULL, 0),
        )
    )
    named = {name: shstrtab.index(f"{name}\0".encode()) for name in _NAMES[1:]}
    alloc = _SHF_WRITE_ALLOC
    sections = (
        _Section(),
        _Section(named[".hash"], _SHT_HASH, alloc, hash_at, sizes[0], _DYNSYM, 0, 4),
        _Section(named[".dynsym"], _SHT_DYNSYM, alloc, symbols_at, sizes[1], _DYNSTR, 1, _SYM_BYTES),
        _Section(named[".dynstr"], _SHT_STRTAB, alloc, strings_at, sizes[2]),
        _Section(named[".dynamic"], _SHT_DYNAMIC, alloc, dynamic_at, sizes[3], _DYNSTR, 0, _DYN_BYTES),
        _Section(named[".shstrtab"], _SHT_STRTAB, 0, names_at, sizes[4]),
    )
    segments = (
        # Writable as a whole: the dynamic linker adds the load address to the entries of .dynamic in place.
        _program_header(_PT_LOAD, 0, names_at, _PAGE_BYTES),
        _program_header(_PT_DYNAMIC, dynamic_at, len(dynamic), _ALIGN_BYTES),
        # Without this one, a library asks for a stack that code can run on.
        _program_header(_PT_GNU_STACK, 0, 0, 16),
    )
    content = (_ONE_EMPTY_BUCKET, bytes(_SYM_BYTES), dynstr, dynamic, shstrtab)
    return b"".join(
        (
            _elf_header(MACHINES[machine], headers_at, len(sections)),
            *segments,
            *map(_aligned, content),
            *(section.header() for section in sections),
        )
    )


def _offsets(begin: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Where each part begins when they follow one another, aligned, and last where what comes after them does."""
    offsets = [begin]
    for size in sizes:
        offsets.append(offsets[-1] + size + -size % _ALIGN_BYTES)
    return tuple(offsets)


def _aligned(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGN_BYTES)


def _elf_header(machine_number: int, headers_at: int, sections: int) -> bytes:
    return struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\2\1\1",  # 64 bits, little-endian, the current version, System V; padded with zeros
        _ET_DYN,  # e_type
        machine_number,  # e_machine
        _EV_CURRENT,  # e_version
        0,  # e_entry: no program
        _EHDR_BYTES,  # e_phoff
        headers_at,  # e_shoff
        0,  # e_flags
        _EHDR_BYTES,  # e_ehsize
        _PHDR_BYTES,  # e_phentsize
        _SEGMENTS,  # e_phnum
        _SHDR_BYTES,  # e_shentsize
        sections,  # e_shnum
        sections - 1,  # e_shstrndx: the sections' names are the last one
    )


def _program_header(kind: int, offset: int, size_bytes: int, align_bytes: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, _PF_READ_WRITE, offset, offset, offset, size_bytes, size_bytes, align_bytes)
