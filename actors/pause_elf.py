"""The `pause` program: a static ELF of one segment that waits for ever, written byte by byte.

The sandbox's root container must live as long as the sandbox and do nothing. A program of our own needs no image, no
compiler and no C library, and its few bytes can be read here. Measured on runsc 20240729: it runs and restores as the
sandbox's root.

With an argument it exits with 0 at once: executed so in the root container, it tells that the sandbox is not frozen.

Source: pause(2), ppoll(2); the syscall numbers of the two architectures.
"""

from __future__ import annotations

import functools
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from .static_elf import EM_AARCH64, EM_X86_64, of_machine, static_elf

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen
class _Machine:
    """What differs between architectures: the ELF machine number and the code."""

    elf_number: int
    code: bytes


_X86_64: Final = _Machine(
    EM_X86_64,
    bytes.fromhex("48833c2401")  # cmp qword [rsp], 1 argc: the program's own name, and more?
    + bytes.fromhex("7509")  # jne +9             to the exit
    + bytes.fromhex("b822000000")  # mov eax, 34        pause(2)
    + bytes.fromhex("0f05")  # syscall
    + bytes.fromhex("ebf7")  # jmp -9             back to the mov: a signal's handler may have ended the call
    + bytes.fromhex("b83c000000")  # mov eax, 60        exit(2)
    + bytes.fromhex("31ff")  # xor edi, edi       with 0
    + bytes.fromhex("0f05"),  # syscall
)

# AArch64 has no pause(2); ppoll with no descriptors, no timeout and no mask is what its C library calls instead.
_AARCH64: Final = _Machine(
    EM_AARCH64,
    struct.pack(
        "<13I",
        0xF940_03E0,  # ldr x0, [sp]       argc
        0xF100_041F,  # cmp x0, #1         the program's own name, and more?
        0x5400_0101,  # b.ne +32           to the exit
        0xD280_0000,  # mov x0, #0         no descriptors
        0xD280_0001,  # mov x1, #0         their count
        0xD280_0002,  # mov x2, #0         no timeout
        0xD280_0003,  # mov x3, #0         no signal mask
        0xD280_0928,  # mov x8, #73        ppoll(2)
        0xD400_0001,  # svc #0
        0x17FF_FFFA,  # b -24              back to the first mov: the call leaves its result in x0
        0xD280_0000,  # mov x0, #0
        0xD280_0BA8,  # mov x8, #93        exit(2)
        0xD400_0001,  # svc #0
    ),
)

_MACHINES: Final[Mapping[str, _Machine]] = MappingProxyType({"x86_64": _X86_64, "aarch64": _AARCH64})


@functools.cache
def pause_elf(machine: str) -> bytes:
    """Return the pause program for a machine as `uname -m` names it: x86_64 (145 bytes) or aarch64 (172 bytes).

    Raises:
        UnsupportedMachineError: gVisor itself runs on no other.
    """
    found = of_machine(_MACHINES, machine, program="pause")
    return static_elf(found.elf_number, found.code)
