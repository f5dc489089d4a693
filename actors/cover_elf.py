"""The `cover` program: lays a file system of its own over a root file system, then becomes the command it was given.

Measured on runsc 20240729: the gofer of a container makes a mount point in the container's rootfs, on the host, for
each bind mount whose destination is not there. `--overlay2` does not help: that is inside the sandbox. A rootfs that
Greenroom was given would have empty files in it ever after, named like the driver's libraries, for whoever shares it.
So the command that starts the gofer is begun by this program, in a mount namespace in which an overlay lies on the
rootfs; nobody else sees it, and it is gone with the gofer. It is a static ELF of some 400 bytes:

    cover ROOTFS SCRATCH SCRATCH/upper SCRATCH/work OPTIONS COMMAND ARG …

    a mount namespace of its own, from which nothing spreads
    a tmpfs on SCRATCH, with both directories; the overlay with its OPTIONS on ROOTFS; 125 if any of it fails
    COMMAND is executed; 125 if it cannot be

Source: unshare(2), mount(2), execve(2); filesystems/overlayfs of the kernel's documentation; the syscall numbers of the
two architectures.
"""

from __future__ import annotations

import functools
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .static_elf import EM_AARCH64, EM_X86_64, ENTRY, mov_wide, of_machine, static_elf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CANNOT_COVER: Final = 125

_CLONE_NEWNS: Final = 0x2_0000
_FROM_HOST_ONLY: Final = 0x8_4000  # MS_REC | MS_SLAVE
_DIRECTORY_MODE: Final = 0o755
_OVERLAY, _TMPFS, _TOP = b"overlay\0", b"tmpfs\0", b"/\0"
_ROOTFS, _SCRATCH, _UPPER, _WORK, _OPTIONS, _COMMAND = range(1, 7)
"""Which word of the command line is what."""


def _place(word: int) -> int:
    """Where a word's address is, from the stack pointer at the beginning: argc comes first."""
    return 8 + 8 * word


def _x86_64(overlay: int, tmpfs: int, top: int) -> bytes:
    mount, mkdir = bytes.fromhex("b8a5000000"), bytes.fromhex("b853000000")  # mov eax, …
    nothing = bytes.fromhex("4531d2 4531c0")  # xor r10d, r10d; xor r8d, r8d

    def number(register: str, value: int) -> bytes:
        return bytes.fromhex({"edi": "bf", "esi": "be", "edx": "ba"}[register]) + struct.pack("<I", value)

    def word(register: str, which: int) -> bytes:  # mov …, [rbx+…]
        return bytes.fromhex({"rdi": "488b7b", "rsi": "488b73", "r8": "4c8b43"}[register]) + bytes([_place(which)])

    calls = (
        bytes.fromhex("4889e3 b810010000") + number("edi", _CLONE_NEWNS),  # mov rbx, rsp; unshare
        mount + number("edi", overlay) + number("esi", top) + bytes.fromhex("31d2 41ba")  # xor edx, edx; mov r10d, …
        + struct.pack("<I", _FROM_HOST_ONLY) + bytes.fromhex("4531c0"),
        mount + number("edi", overlay) + word("rsi", _SCRATCH) + number("edx", tmpfs) + nothing,
        mkdir + word("rdi", _UPPER) + number("esi", _DIRECTORY_MODE),
        mkdir + word("rdi", _WORK) + number("esi", _DIRECTORY_MODE),
        mount + number("edi", overlay) + word("rsi", _ROOTFS) + number("edx", overlay) + nothing + word("r8", _OPTIONS),
    )  # fmt: skip
    execute = (
        word("rdi", _COMMAND)
        + bytes.fromhex("488d73") + bytes([_place(_COMMAND)])  # lea rsi, [rbx+…]
        + bytes.fromhex("488b03 488d54c310")  # mov rax, [rbx]; lea rdx, [rbx+rax*8+16]   envp
        + bytes.fromhex("b83b000000 0f05")
    )  # fmt: skip
    check_bytes = 10  # syscall; test eax, eax; jnz broken
    sizes = [len(call) + check_bytes for call in calls]
    code = b""
    for index, call in enumerate(calls):
        ahead = sum(sizes[index + 1 :]) + len(execute)
        code += call + bytes.fromhex("0f05 85c0 0f85") + struct.pack("<i", ahead)
    broken = number("edi", CANNOT_COVER) + bytes.fromhex("b83c000000 0f05")  # exit
    return code + execute + broken


def _aarch64(overlay: int, tmpfs: int, top: int) -> bytes:
    number = mov_wide

    def word(register: int, which: int) -> list[int]:
        return [0xF940_0000 | (_place(which) // 8) << 10 | 19 << 5 | register]  # ldr xN, [x19, #…]

    mount, mkdirat = number(8, 40), [*number(8, 34), *number(0, 0)]
    calls = (
        [0x9100_03F3, *number(0, _CLONE_NEWNS), *number(8, 97)],  # mov x19, sp; unshare
        [*number(0, overlay), *number(1, top), *number(2, 0), *number(3, _FROM_HOST_ONLY), *number(4, 0), *mount],
        [*number(0, overlay), *word(1, _SCRATCH), *number(2, tmpfs), *number(3, 0), *number(4, 0), *mount],
        [*mkdirat, *word(1, _UPPER), *number(2, _DIRECTORY_MODE)],
        [*mkdirat, *word(1, _WORK), *number(2, _DIRECTORY_MODE)],
        [*number(0, overlay), *word(1, _ROOTFS), *number(2, overlay), *number(3, 0), *word(4, _OPTIONS), *mount],
    )
    execute = [
        *word(0, _COMMAND),
        0x9100_0000 | _place(_COMMAND) << 10 | 19 << 5 | 1,  # add x1, x19, #…
        0xF940_0269,  # ldr x9, [x19]
        0x8B09_0E62,  # add x2, x19, x9, lsl #3
        0x9100_4042,  # add x2, x2, #16      envp
        *number(8, 221),
        0xD400_0001,
    ]
    code: list[int] = []
    for index, call in enumerate(calls):
        ahead = 1 + sum(len(each) + 2 for each in calls[index + 1 :]) + len(execute)
        code += [*call, 0xD400_0001, 0xB500_0000 | ahead << 5]  # svc; cbnz x0, broken
    code += [*execute, *number(0, CANNOT_COVER), *number(8, 93), 0xD400_0001]  # exit
    return struct.pack(f"<{len(code)}I", *code)


_MACHINES: Final[Mapping[str, tuple[int, Callable[[int, int, int], bytes]]]] = MappingProxyType(
    {"x86_64": (EM_X86_64, _x86_64), "aarch64": (EM_AARCH64, _aarch64)}
)


@functools.cache
def cover_elf(machine: str) -> bytes:
    """Return the program for a machine as `uname -m` names it.

    Raises:
        UnsupportedMachineError: gVisor itself runs on no other.
    """
    number, code = of_machine(_MACHINES, machine, program="cover")
    overlay = ENTRY + len(code(0, 0, 0))
    tmpfs = overlay + len(_OVERLAY)
    return static_elf(number, code(overlay, tmpfs, tmpfs + len(_TMPFS)) + _OVERLAY + _TMPFS + _TOP)
