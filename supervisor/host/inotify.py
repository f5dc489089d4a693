"""To be told, once and at no cost until then, that something was written into a file of a directory.

watchfiles looks many times a second; what is watched here are as many directories as actors live, nearly always still.
One instance serves all of them. Each watch is for one event only (IN_ONESHOT), so that a container that writes without
end wakes nobody who is not waiting; and what has happened is told in beats, so that a hundred that write now and then
wake the worker no more often than one.

Source: inotify(7) of man-pages 6.9.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from supervisor.log_files import rest_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

_IN_MODIFY: Final = 0x0000_0002
_IN_MOVED_TO: Final = 0x0000_0080
_IN_CREATE: Final = 0x0000_0100
_IN_DELETE: Final = 0x0000_0200
_IN_ONLYDIR: Final = 0x0100_0000
_IN_ONESHOT: Final = 0x8000_0000
_ONCE: Final = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_ONLYDIR | _IN_ONESHOT
_LOST: Final = -1
"""In place of a watch: the queue was full, and events were lost."""
_EVENT: Final = struct.Struct("iIII")
_BUFFER_BYTES: Final = 1 << 16

_libc: Final = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """One instance. Made by `open_inotify`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: dict[int, list[anyio.Event]] = {}

    @contextmanager
    def armed(self, directory: Path) -> Iterator[anyio.Event]:
        """An event that is set once something was written in the directory after this was entered.

        Raises:
            OSError: it is not there (ENOENT, ENOTDIR), or cannot be watched (ENOSPC: no watch left).
        """
        number: int = _libc.inotify_add_watch(self._fd, os.fsencode(directory), ctypes.c_uint32(_ONCE))
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(directory))
        event = anyio.Event()
        self._waiting.setdefault(number, []).append(event)
        try:
            yield event
        finally:
            self._disarm(number, event)

    def _disarm(self, number: int, event: anyio.Event) -> None:
        events = self._waiting.get(number, [])
        if event in events:
            events.remove(event)
            if not events:
                del self._waiting[number]
                _libc.inotify_rm_watch(self._fd, number)  # it may have told meanwhile, and be gone

    async def tell(self) -> None:
        """Set the events, until cancelled: at once after a silence, else those of one beat together."""
        while True:
            await anyio.wait_readable(self._fd)
            try:
                told = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                continue
            for number in _watches(told):
                for each in tuple(self._waiting) if number == _LOST else (number,):
                    for event in self._waiting.pop(each, ()):
                        event.set()
            await anyio.sleep(rest_s(anyio.current_time()))


@asynccontextmanager
async def open_inotify() -> AsyncIterator[Inotify | None]:
    """An instance, whose `tell` is the caller's to run; None where there is none to be had (a limit of the node)."""
    fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        yield None
        return
    try:
        yield Inotify(fd)
    finally:
        os.close(fd)


def _watches(told: bytes) -> Iterator[int]:
    """The watch of each event; a name follows each."""
    at = 0
    while at < len(told):
        number, _mask, _cookie, name_bytes = _EVENT.unpack_from(told, at)
        yield number
        at += _EVENT.size + name_bytes
