"""A small program of the CUDA driver API: computes on the first GPU, says what came of it, and can hold its context.

It needs no CUDA but the driver's own libcuda.so.1, and no Python but the standard library. It fills memory, has a
kernel compute on it and compares every word with what the processor gets; then it prints one line of JSON and ends
with 0, or with 1 and the call that failed.

Usage: python3 cuda.py [--library PATH] [--hold | --hold-s SECONDS]
  --hold     keep the context until stdin ends
  --hold-s   keep it so long
"""

from __future__ import annotations

import argparse
import array
import ctypes
import json
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WORDS = 1 << 16
FILLED = 0x5EED1E55
THREADS = 256
# The driver compiles it for its own GPU. Newer drivers may refuse old targets, and older ones do not know new ones.
TARGETS = ("sm_75", "sm_52")
PTX = """.version 6.4
.target {target}
.address_size 64

.visible .entry triple(.param .u64 words, .param .u32 count)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r6, [%rd4];
    mad.lo.s32 %r7, %r6, 3, %r5;
    st.global.u32 [%rd4], %r7;
done:
    ret;
}}
"""


class CudaError(Exception):
    """Raised when a call fails, or what was computed is wrong."""


class Cuda:
    """The driver's library; a call that does not return 0 raises."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise CudaError(f"{path} cannot be loaded: {error}") from error

    def call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise CudaError(f"{name}: the library has no such function") from error
        if code := function(*arguments):
            raise CudaError(f"{name}: {self._name(code)} ({code})")

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        known = self._library.cuGetErrorName(code, ctypes.byref(text)) == 0
        return text.value.decode() if known and text.value else "unknown error"

    def number(self, name: str, *arguments: Any) -> int:
        """The int that a call writes into its first argument."""
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value


@contextmanager
def context(cuda: Cuda, device: int) -> Iterator[None]:
    """The device's own context, current."""
    handle = ctypes.c_void_p()
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), device)
    try:
        cuda.call("cuCtxSetCurrent", handle)
        yield
    finally:
        cuda.call("cuDevicePrimaryCtxRelease_v2", device)


@contextmanager
def memory(cuda: Cuda, size_bytes: int) -> Iterator[ctypes.c_uint64]:
    address = ctypes.c_uint64()
    cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
    try:
        yield address
    finally:
        cuda.call("cuMemFree_v2", address)


def read(cuda: Cuda, address: ctypes.c_uint64) -> array.array[int]:
    data = ctypes.create_string_buffer(WORDS * 4)
    cuda.call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(WORDS * 4))
    return array.array("I", data.raw)


def require(found: array.array[int], expected: array.array[int], what: str) -> None:
    wrong = [index for index in range(WORDS) if found[index] != expected[index]]
    if wrong:
        at = wrong[0]
        raise CudaError(f"{what}: {len(wrong)} of {WORDS} words are wrong; [{at}] is {found[at]}, not {expected[at]}")


def load(cuda: Cuda) -> ctypes.c_void_p:
    """The kernel, compiled by the driver for this GPU."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    for target in TARGETS:
        try:
            cuda.call("cuModuleLoadData", ctypes.byref(module), PTX.format(target=target).encode())
            break
        except CudaError:
            if target == TARGETS[-1]:
                raise
    cuda.call("cuModuleGetFunction", ctypes.byref(function), module, b"triple")
    return function


def compute(cuda: Cuda, address: ctypes.c_uint64) -> None:
    """Fill and read back; then a kernel over words of ours."""
    cuda.call("cuMemsetD32_v2", address, ctypes.c_uint(FILLED), ctypes.c_size_t(WORDS))
    require(read(cuda, address), array.array("I", [FILLED]) * WORDS, "memset")
    given = array.array("I", ((index * 2654435761) & 0xFFFFFFFF for index in range(WORDS)))
    cuda.call("cuMemcpyHtoD_v2", address, given.tobytes(), ctypes.c_size_t(WORDS * 4))
    count = ctypes.c_uint(WORDS)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.pointer(each), ctypes.c_void_p) for each in (address, count)))
    shape = (WORDS // THREADS, 1, 1, THREADS, 1, 1, 0)
    cuda.call("cuLaunchKernel", load(cuda), *shape, None, pointers, None)
    cuda.call("cuCtxSynchronize")
    expected = array.array("I", ((word * 3 + index) & 0xFFFFFFFF for index, word in enumerate(given)))
    require(read(cuda, address), expected, "kernel")


def described(cuda: Cuda, device: int) -> dict[str, Any]:
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    cuda.call("cuDeviceGetName", name, 256, device)
    cuda.call("cuDeviceGetUuid", uuid, device)
    digits = uuid.raw.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return {"device": name.value.decode(errors="replace"), "uuid": f"GPU-{'-'.join(parts)}"}


def tell(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--hold-s", type=float, default=0.0)
    options = parser.parse_args()
    try:
        cuda = Cuda(options.library)
        cuda.call("cuInit", 0)
        facts = {"driverVersion": cuda.number("cuDriverGetVersion"), "devices": cuda.number("cuDeviceGetCount")}
        if facts["devices"] == 0:
            raise CudaError("cuDeviceGetCount: there is no device")  # noqa: TRY301 - told as any other failure
        device = cuda.number("cuDeviceGet", 0)
        with context(cuda, device), memory(cuda, WORDS * 4) as address:
            compute(cuda, address)
            tell({"ok": True, **facts, **described(cuda, device), "words": WORDS})
            if options.hold:
                sys.stdin.read()
            select.select([], [], [], options.hold_s)
    except CudaError as error:
        tell({"ok": False, "error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
