"""A static ELF of one segment around a few instructions: the form of the programs that Greenroom writes itself.

And those instructions of AArch64 that more than one of them needs.

Source: System V ABI, "Object Files" (ELF-64); Arm Architecture Reference Manual, "MOVZ", "MOVK".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")

_LOAD_ADDRESS: Final = 0x40_0000
_EHDR_BYTES: Final = 64
_PHDR_BYTES: Final = 56
_PAGE_BYTES: Final = (
    0x1_0000  # 64 KiB: the largest page of either architecture, so that the segment loads on every kernel
)

_ET_EXEC: Final = 2
_EV_CURRENT: Final = 1
_PT_LOAD: Final = 1
_PF_READ_EXECUTE: Final = 5  # PF_R | PF_X

ENTRY: Final = _LOAD_ADDRESS + _EHDR_BYTES + _PHDR_BYTES
"""The address of the code's first byte, which follows the two headers."""

EM_X86_64: Final = 62
EM_AARCH64: Final = 183


class UnsupportedMachineError(ValueError):
    """Raised when a program is not written for a machine's architecture."""


def of_machine(table: Mapping[str, _T], machine: str, *, program: str) -> _T:
    """Return what a program's table has for a machine as `uname -m` names it.

    Raises:
        UnsupportedMachineError: gVisor itself runs on no other.
    """
    if machine not in table:
        message = f"no {program} program for {machine!r}; known are {', '.join(sorted(table))}"
        raise UnsupportedMachineError(message)
    return table[machine]


def static_elf(elf_number: int, code: bytes) -> bytes:
    """Return a program that begins with the code's first byte.

    Args:
        elf_number: the machine's (EM_…).
        code: instructions, and what they need beside them; read-only.
    """
    size_bytes = _EHDR_BYTES + _PHDR_BYTES + len(code)
    return _elf_header(elf_number) + _program_header(size_bytes) + code


def movz(register: int, value: int) -> int:
    """Encode `movz xN, #value`, of 16 bits."""
    return 0xD280_0000 | value << 5 | register


def mov_wide(register: int, value: int) -> tuple[int, int]:
    """Encode `movz` of the low half of 32 bits, such as an address, and `movk` of their high half."""
    return movz(register, value & 0xFFFF), 0xF2A0_0000 | (value >> 16) << 5 | register


def _elf_header(machine_number: int) -> bytes:
    identification = b"\x7fELF" + bytes(
        (
            2,  # EI_CLASS: 64 bits
            1,  # EI_DATA: little-endian
            _EV_CURRENT,  # EI_VERSION
            0,  # EI_OSABI: System V
        )
    )
    return struct.pack(
        "<16sHHIQQQIHHHHHH",
        identification,  # e_ident, padded with zeros to 16 bytes
        _ET_EXEC,  # e_type
        machine_number,  # e_machine
        _EV_CURRENT,  # e_version
        ENTRY,  # e_entry
        _EHDR_BYTES,  # e_phoff: the program header follows this one
        0,  # e_shoff: no section headers
        0,  # e_flags
        _EHDR_BYTES,  # e_ehsize
        _PHDR_BYTES,  # e_phentsize
        1,  # e_phnum
        0,  # e_shentsize
        0,  # e_shnum
        0,  # e_shstrndx
    )


def _program_header(size_bytes: int) -> bytes:
    """Map the whole file, headers included, read-only and executable."""
    return struct.pack(
        "<IIQQQQQQ",
        _PT_LOAD,  # p_type
        _PF_READ_EXECUTE,  # p_flags
        0,  # p_offset: from the file's beginning
        _LOAD_ADDRESS,  # p_vaddr
        _LOAD_ADDRESS,  # p_paddr: not used, equal by custom
        size_bytes,  # p_filesz
        size_bytes,  # p_memsz
        _PAGE_BYTES,  # p_align
    )
