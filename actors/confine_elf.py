"""The `confine` program: makes itself unable to make device nodes, then becomes the command that it was given.

Measured on runsc 20240729: what `runsc exec` starts is not under the filter of its container, so that a node made there
would lie in the container for its application to open. This program is handed to `runsc exec` as a descriptor (its
stdin), so that nothing of it is in the container, where it could be replaced. It is a static ELF of some 440 bytes:

    confine FILE … "" ARGV0 ARG …

    no_new_privs, and the filter; 126 if it cannot
    /dev/null becomes stdin again
    each FILE in turn is executed with what follows the empty word as its argv; 127 if none can be

At a terminal stdin is that, and the program another descriptor: there is one of the same kind that leaves stdin alone.

Source: prctl(2), seccomp(2), execve(2); the BPF of linux/filter.h; the syscall numbers of the two architectures.
"""

from __future__ import annotations

import functools
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from .bundle.seccomp import DEVICE_KINDS, S_IFMT
from .static_elf import EM_AARCH64, EM_X86_64, ENTRY, mov_wide, movz, of_machine, static_elf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CANNOT_CONFINE: Final = 126
CANNOT_EXECUTE: Final = 127

Instruction = tuple[int, int, int, int]
"""One of BPF: code, how far to jump if true, if false, and the constant."""

_ALLOW: Final = 0x7FFF_0000  # SECCOMP_RET_ALLOW
_REFUSE: Final = 0x0005_0001  # SECCOMP_RET_ERRNO with EPERM
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_NOT_LESS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET, _ARG_BYTES = 0, 4, 16, 8  # of struct seccomp_data
_X32_BIT: Final = 0x4000_0000
_DEV_NULL: Final = b"/dev/null\0"
_FPROG_BYTES: Final = 16


@attrs.frozen
class _Machine:
    """What differs between architectures.

    Attributes:
        elf_number: EM_….
        audit_arch: AUDIT_ARCH_…, by which the filter knows its own system calls.
        calls: the numbers of mknod (where there is one) and mknodat, and at which index their mode is.
        code: the instructions, given the addresses of the filter's sock_fprog and of "/dev/null"; None leaves stdin
            alone.
    """

    elf_number: int
    audit_arch: int
    calls: tuple[tuple[int, int], ...]
    code: Callable[[int, int | None], bytes]


def _x86_64(fprog: int, dev_null: int | None) -> bytes:
    return (
        bytes.fromhex("4889e3")  # mov rbx, rsp          argc, argv, NULL, envp
        + bytes.fromhex("b89d000000 bf26000000 be01000000")  # prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        + bytes.fromhex("31d2 4531d2 4531c0 0f05")
        + bytes.fromhex("85c0 7576")  # test eax, eax; jnz broken
        + bytes.fromhex("b89d000000 bf16000000 be02000000 ba")  # prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog)
        + struct.pack("<I", fprog)
        + bytes.fromhex("0f05 85c0 755c")  # syscall; test eax, eax; jnz broken
        + _x86_64_stdin(dev_null)
        + bytes.fromhex("488d6b10")  # lea rbp, [rbx+16]   the first FILE
        + bytes.fromhex("488b4500 4885c0 7431")  # find: mov rax, [rbp]; test rax, rax; jz absent
        + bytes.fromhex("4883c508 803800 75ee")  # add rbp, 8; cmp byte [rax], 0; jne find
        + bytes.fromhex("488b03 4c8d64c310")  # mov rax, [rbx]; lea r12, [rbx+rax*8+16]   envp
        + bytes.fromhex("4c8d6b10")  # lea r13, [rbx+16]
        + bytes.fromhex("498b7d00 803f00 7413")  # try: mov rdi, [r13]; cmp byte [rdi], 0; je absent
        + bytes.fromhex("4983c508 4889ee 4c89e2")  # add r13, 8; mov rsi, rbp; mov rdx, r12
        + bytes.fromhex("b83b000000 0f05 ebe4")  # execve; jmp try
        + bytes.fromhex("bf7f000000 eb05")  # absent: mov edi, 127; jmp leave
        + bytes.fromhex("bf7e000000")  # broken: mov edi, 126
        + bytes.fromhex("b83c000000 0f05")  # leave: exit
    )


def _x86_64_stdin(dev_null: int | None) -> bytes:
    if dev_null is None:
        return b"\x90" * 23  # as many of nop, so that the jumps stay as they are
    return (
        bytes.fromhex("b803000000 31ff 0f05")  # close(0)
        + bytes.fromhex("b802000000 bf")  # open("/dev/null", O_RDONLY): the lowest number is 0
        + struct.pack("<I", dev_null)
        + bytes.fromhex("31f6 0f05")
    )


def _aarch64(fprog: int, dev_null: int | None) -> bytes:
    return struct.pack(
        "<51I",
        0x9100_03F3,  # mov x19, sp            argc, argv, NULL, envp
        *(movz(0, 38), movz(1, 1), movz(2, 0), movz(3, 0), movz(4, 0), movz(8, 167)),
        0xD400_0001,  # prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        0xB500_0000 | 40 << 5 | 0,  # cbnz x0, +40    broken
        *(movz(0, 22), movz(1, 2), *mov_wide(2, fprog), movz(3, 0), movz(4, 0), movz(8, 167)),
        0xD400_0001,  # prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog)
        0xB500_0000 | 31 << 5 | 0,  # cbnz x0, +31    broken
        *_aarch64_stdin(dev_null),
        0x9100_4274,  # add x20, x19, #16      the first FILE
        0xF940_0295,  # find: ldr x21, [x20]
        0xB400_0000 | 17 << 5 | 21,  # cbz x21, +17    absent
        0x9100_2294,  # add x20, x20, #8
        0x3940_02B6,  # ldrb w22, [x21]
        0x3500_0000 | (-4 & 0x7_FFFF) << 5 | 22,  # cbnz w22, -4    find
        0xF940_0276,  # ldr x22, [x19]
        0x8B16_0E77,  # add x23, x19, x22, lsl #3
        0x9100_42F7,  # add x23, x23, #16      envp
        0x9100_4278,  # add x24, x19, #16
        0xF940_0300,  # try: ldr x0, [x24]
        0x3940_0019,  # ldrb w25, [x0]
        0x3400_0000 | 7 << 5 | 25,  # cbz w25, +7     absent
        0x9100_2318,  # add x24, x24, #8
        0xAA14_03E1,  # mov x1, x20
        0xAA17_03E2,  # mov x2, x23
        movz(8, 221),
        0xD400_0001,  # execve
        0x1400_0000 | (-8 & 0x3FF_FFFF),  # b -8            try
        movz(0, CANNOT_EXECUTE),  # absent
        0x1400_0000 | 2,  # b +2            leave
        movz(0, CANNOT_CONFINE),  # broken
        movz(8, 93),  # leave
        0xD400_0001,  # exit
    )


def _aarch64_stdin(dev_null: int | None) -> tuple[int, ...]:
    if dev_null is None:
        return (0xD503_201F,) * 9  # as many of nop
    return (
        *(movz(0, 0), movz(8, 57)),
        0xD400_0001,  # close(0)
        0x9280_0000 | 99 << 5 | 0,  # movn x0, #99           AT_FDCWD, -100
        *(*mov_wide(1, dev_null), movz(2, 0), movz(8, 56)),
        0xD400_0001,  # openat(AT_FDCWD, "/dev/null", O_RDONLY): the lowest number is 0
    )


_MACHINES: Final[Mapping[str, _Machine]] = MappingProxyType(
    {
        "x86_64": _Machine(EM_X86_64, 0xC000_003E, ((133, 1), (259, 2)), _x86_64),
        "aarch64": _Machine(EM_AARCH64, 0xC000_00B7, ((33, 2),), _aarch64),
    }
)


@functools.cache
def confine_elf(machine: str) -> bytes:
    """Return the program for a machine as `uname -m` names it.

    Raises:
        UnsupportedMachineError: gVisor itself runs on no other.
    """
    return _program(machine, stdin=_DEV_NULL)


@functools.cache
def confine_at_terminal_elf(machine: str) -> bytes:
    """Return the one that leaves stdin alone.

    Raises:
        UnsupportedMachineError: gVisor itself runs on no other.
    """
    return _program(machine, stdin=b"")


def _program(machine: str, *, stdin: bytes) -> bytes:
    """One that makes this path its stdin; of none it leaves that alone."""
    found = of_machine(_MACHINES, machine, program="confine")
    program = filter_program(machine)
    instructions = b"".join(struct.pack("<HBBI", *each) for each in program)
    fprog = ENTRY + _aligned(len(found.code(0, None)))
    filter_at = fprog + _FPROG_BYTES
    code = found.code(fprog, filter_at + len(instructions) if stdin else None)
    data = struct.pack("<HxxxxxxQ", len(program), filter_at) + instructions + stdin
    return static_elf(found.elf_number, code.ljust(fprog - ENTRY, b"\0") + data)


def filter_program(machine: str) -> tuple[Instruction, ...]:
    """Return the filter: EPERM for device nodes and for calls of another architecture, leave for everything else."""
    found = _MACHINES[machine]
    return (
        (_LOAD, 0, 0, _ARCH_OFFSET),
        (_JUMP_IF_EQUAL, 1, 0, found.audit_arch),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NR_OFFSET),
        (_JUMP_IF_NOT_LESS, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _REFUSE),
        *(each for number, index in found.calls for each in _judged(number, index)),
        (_RETURN, 0, 0, _ALLOW),
    )


def _judged(number: int, index: int) -> tuple[Instruction, ...]:
    """One call: what its mode says it makes. Every other call goes on behind this."""
    character, block = DEVICE_KINDS
    return (
        (_JUMP_IF_EQUAL, 0, 6, number),
        (_LOAD, 0, 0, _ARGS_OFFSET + _ARG_BYTES * index),
        (_AND, 0, 0, S_IFMT),
        (_JUMP_IF_EQUAL, 2, 0, character),
        (_JUMP_IF_EQUAL, 1, 0, block),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    )


def _aligned(size_bytes: int) -> int:
    return (size_bytes + 7) // 8 * 8
