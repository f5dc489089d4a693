"""Errors, as the simulated world raises them: the kernel's, and those that a port has besides."""

from __future__ import annotations

import errno
from typing import Final

import anyio

from actors.ports import DeadlineExceededError, StoreError, TooLargeError
from sim.faults import BROKEN, DEADLINE, END_OF_STREAM, STORE, TOO_LARGE

# Source: errno(3) and strerror(3) of glibc 2.36. tests/sim/test_errors.py compares them with the machine's.
_TEXTS: Final = {
    errno.EPERM: "Operation not permitted",
    errno.ENOENT: "No such file or directory",
    errno.EIO: "Input/output error",
    errno.ENXIO: "No such device or address",
    errno.EAGAIN: "Resource temporarily unavailable",
    errno.EACCES: "Permission denied",
    errno.EBUSY: "Device or resource busy",
    errno.EEXIST: "File exists",
    errno.EXDEV: "Invalid cross-device link",
    errno.ENOTDIR: "Not a directory",
    errno.EISDIR: "Is a directory",
    errno.EINVAL: "Invalid argument",
    errno.EMFILE: "Too many open files",
    errno.EFBIG: "File too large",
    errno.ENOSPC: "No space left on device",
    errno.EROFS: "Read-only file system",
    errno.EPIPE: "Broken pipe",
    errno.ENAMETOOLONG: "File name too long",
    errno.ENOTEMPTY: "Directory not empty",
    errno.ELOOP: "Too many levels of symbolic links",
    errno.EADDRINUSE: "Address already in use",
    errno.ECONNREFUSED: "Connection refused",
    errno.ESTALE: "Stale file handle",
    errno.EDQUOT: "Disk quota exceeded",
}


def kernel_error(number: int, name: str | None = None) -> OSError:
    """The error with the kernel's words; Python makes it a FileNotFoundError and so on by its number."""
    text = _TEXTS.get(number) or errno.errorcode[number]
    return OSError(number, text) if name is None else OSError(number, text, name)


def error_of(name: str) -> Exception:
    """The error of a name in a plan."""
    match name:
        case _ if name == DEADLINE:
            return DeadlineExceededError()
        case _ if name == TOO_LARGE:
            return TooLargeError(errno.EFBIG, "larger than it may be")
        case _ if name == END_OF_STREAM:
            return anyio.EndOfStream()
        case _ if name == BROKEN:
            return anyio.BrokenResourceError()
        case _ if name == STORE:
            return StoreError(errno.EIO, "the store does not answer")
        case _:
            return kernel_error(getattr(errno, name))
