"""The `enter` program: moves itself into a cgroup, then becomes the command that it was given.

What a process starts is born in its cgroup, and posix_spawn(3) knows no cgroup. So the command that makes a sandbox or
a gofer is begun by this program: before runsc's first instruction it is where it belongs, and so is everything that
runsc forks. Moving the sandbox afterwards would leave what it has started meanwhile behind, and its memory charged to
whoever it was born with. It is a static ELF of some 250 bytes:

    enter CGROUP.PROCS COMMAND ARG …

    "0", which is whoever writes it, into CGROUP.PROCS, which is opened and never made; 124 if it cannot
    COMMAND is executed; 124 if it cannot be

Source: admin-guide/cgroup-v2 of the kernel's documentation ("Processes"); open(2), write(2), execve(2); the syscall
numbers of the two architectures.
"""

from __future__ import annotations

import functools
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .static_elf import EM_AARCH64, EM_X86_64, ENTRY, mov_wide, movz, of_machine, static_elf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CANNOT_ENTER: Final = 124
WORDS: Final = 2
"""How many words come before the command: the program, and the file."""

_ZERO: Final = b"0"


def _x86_64(zero: int) -> bytes:
    opened = bytes.fromhex(
        "4889e3"  # mov rbx, rsp       argc, argv, NULL, envp
        "488b7b10 be01000000"  # mov rdi, [rbx+16]; mov esi, O_WRONLY
        "b802000000 0f05 85c0"  # open; test eax, eax
    )
    written = (
        bytes.fromhex("89c7 be") + struct.pack("<I", zero)  # mov edi, eax; mov esi, zero
        + bytes.fromhex("ba01000000 b801000000 0f05 83f801")  # mov edx, 1; write; cmp eax, 1
    )  # fmt: skip
    execute = bytes.fromhex(
        "b803000000 0f05"  # close
        "488b7b18 488d7318"  # mov rdi, [rbx+24]; lea rsi, [rbx+24]
        "488b03 488d54c310"  # mov rax, [rbx]; lea rdx, [rbx+rax*8+16]   envp
        "b83b000000 0f05"
    )
    broken = bytes.fromhex("bf") + struct.pack("<I", CANNOT_ENTER) + bytes.fromhex("b83c000000 0f05")  # exit
    after_open = len(written) + 6 + len(execute)
    code = opened + bytes.fromhex("0f88") + struct.pack("<i", after_open)  # js broken
    return code + written + bytes.fromhex("0f85") + struct.pack("<i", len(execute)) + execute + broken  # jne broken


def _aarch64(zero: int) -> bytes:
    opened = [
        0x9100_03F3,  # mov x19, sp            argc, argv, NULL, envp
        0x9280_0000 | 99 << 5,  # movn x0, #99      AT_FDCWD, -100
        _load(1, 16),
        *(movz(2, 1), movz(3, 0), movz(8, 56)),
        0xD400_0001,  # openat(AT_FDCWD, CGROUP.PROCS, O_WRONLY)
    ]
    written = [
        0xAA00_03F4,  # mov x20, x0
        *mov_wide(1, zero),
        *(movz(2, 1), movz(8, 64)),
        0xD400_0001,  # write
        0xF100_041F,  # cmp x0, #1
    ]
    execute = [
        0xAA14_03E0,  # mov x0, x20
        movz(8, 57),
        0xD400_0001,  # close
        _load(0, 24),
        0x9100_0000 | 24 << 10 | 19 << 5 | 1,  # add x1, x19, #24
        0xF940_0269,  # ldr x9, [x19]
        0x8B09_0E62,  # add x2, x19, x9, lsl #3
        0x9100_4042,  # add x2, x2, #16      envp
        movz(8, 221),
        0xD400_0001,  # execve
    ]
    negative = 0xB7F8_0000 | (1 + len(written) + 1 + len(execute)) << 5  # tbnz x0, #63, broken
    other = 0x5400_0001 | (1 + len(execute)) << 5  # b.ne broken
    broken = [movz(0, CANNOT_ENTER), movz(8, 93), 0xD400_0001]  # exit
    code = [*opened, negative, *written, other, *execute, *broken]
    return struct.pack(f"<{len(code)}I", *code)


def _load(register: int, offset_bytes: int) -> int:
    """Encode `ldr xN, [x19, #offset]`."""
    return 0xF940_0000 | (offset_bytes // 8) << 10 | 19 << 5 | register


_MACHINES: Final[Mapping[str, tuple[int, Callable[[int], bytes]]]] = MappingProxyType(
    {"x86_64": (EM_X86_64, _x86_64), "aarch64": (EM_AARCH64, _aarch64)}
)


@functools.cache
def enter_elf(machine: str) -> bytes:
    """Return the program for a machine as `uname -m` names it.

    Raises:
        UnsupportedMachineError: gVisor itself runs on no other.
    """
    number, code = of_machine(_MACHINES, machine, program="enter")
    return static_elf(number, code(ENTRY + len(code(0))) + _ZERO)
