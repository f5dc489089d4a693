"""A connected socket as a byte stream.

Not anyio's own: on asyncio its wait for readability can be answered in the same turn of the loop in which its task is
cancelled, and the loop then complains of an invalid state (anyio 4.16, Python 3.11). `anyio.wait_readable` cannot.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Final

import anyio
from anyio import lowlevel
from anyio.abc import ByteStream

PIECE_BYTES: Final = 1 << 16


class SocketStream(ByteStream):
    """The stream of a connected, non-blocking socket, which it owns."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._is_closed = False

    @property
    def has_hung_up(self) -> bool:
        """Whether either end is closed for good; one that has only shut down its sending is not.

        Source: unix_poll in net/unix/af_unix.c and tcp_poll in net/ipv4/tcp.c of Linux 6.18: POLLHUP when both
        directions are shut down. Over TCP who only closes is not to be told from who sends no more: FIN looks alike.
        """
        if self._is_closed:
            return True
        poller = select.poll()
        poller.register(self._socket, 0)  # what is always told: POLLHUP and POLLERR
        return bool(poller.poll(0))

    async def receive(self, max_bytes: int = PIECE_BYTES) -> bytes:
        """The next bytes, at least one.

        Raises:
            EndOfStream: the other end has closed or will send no more.
            BrokenResourceError: the connection is gone.
            ClosedResourceError: we closed it.
        """
        await lowlevel.checkpoint()
        while True:
            self._require_open()
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        """Send all of it.

        Raises:
            BrokenResourceError: the other end has closed.
            ClosedResourceError: we closed it.
        """
        await lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            self._require_open()
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Say that no more will come; receiving goes on."""
        await lowlevel.checkpoint()
        self._require_open()
        with suppress(OSError):  # the other end is gone: it knows
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close it; who waits on it gets ClosedResourceError. Any number of times."""
        if not self._is_closed:
            self._is_closed = True
            anyio.notify_closing(self._socket)
            self._socket.close()
        await lowlevel.checkpoint()

    def _require_open(self) -> None:
        if self._is_closed:
            raise anyio.ClosedResourceError
