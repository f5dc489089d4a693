"""Bytes between two simulated processes, as through a connected pair of unix sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import anyio
from anyio.abc import ByteStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OneTurn: TypeAlias = "Callable[[], Awaitable[None]]"

# net.core.wmem_default of Linux: what a unix socket takes that nobody reads.
_BUFFER_BYTES: Final = 212_992


class _Pipe:
    """One direction: bytes that were sent and are not yet received.

    Attributes:
        is_ended: nothing more will be sent.
        is_abandoned: nobody will receive any more.
        is_reset: the other end was closed over bytes that it had not received; told once.
    """

    def __init__(self) -> None:
        self.content = bytearray()
        self.is_ended = False
        self.is_abandoned = False
        self.is_reset = False
        self._changed: anyio.Event | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to be had, and will not be for a while."""
        return not (self.content or self.is_ended or self.is_reset or self.is_abandoned)

    def tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()


class _Guard:
    """Only one task at a time, as anyio has it for each direction of a stream."""

    def __init__(self, action: str) -> None:
        self._action = action
        self._is_busy = False

    def __enter__(self) -> None:
        if self._is_busy:
            raise anyio.BusyResourceError(self._action)
        self._is_busy = True

    def __exit__(self, *_error: object) -> None:
        self._is_busy = False


class SimStream(ByteStream):
    """One end of a connection, with the errors of anyio's unix streams."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, let_others_run: OneTurn) -> None:
        self._let_others_run = let_others_run
        self._incoming = incoming
        self._outgoing = outgoing
        self._is_closed = False
        self._is_fenced = False
        self.on_close: Callable[[SimStream], object] | None = None
        # What a call of the dead does instead of returning.
        self.once_dead: Callable[[], Awaitable[object]] = anyio.sleep_forever
        self._receiving = _Guard("reading from")
        self._sending = _Guard("writing to")

    @property
    def has_hung_up(self) -> bool:
        """Whether either end is closed for good."""
        return self._is_closed or self._outgoing.is_abandoned

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What has come, at most so much; waits until something has.

        Raises:
            EndOfStream: nothing more will come.
            ClosedResourceError: this end is closed.
            BrokenResourceError: the other end was closed without having received everything.
        """
        pipe = self._incoming
        if not pipe.is_quiet:
            await self._let_others_run()
        with self._receiving:
            while True:
                if self._is_closed:
                    await self._end()
                if pipe.content:
                    data = bytes(pipe.content[:max_bytes])
                    del pipe.content[:max_bytes]
                    pipe.tell()
                    return data
                if pipe.is_reset:
                    pipe.is_reset = False
                    raise anyio.BrokenResourceError
                if pipe.is_ended:
                    raise anyio.EndOfStream
                await pipe.wait()

    async def send(self, item: bytes) -> None:
        """Send everything; waits while the other end has too much to receive.

        Raises:
            ClosedResourceError: this end is closed.
            BrokenResourceError: the other end is closed, or this one said that it sends no more.
        """
        await self._let_others_run()
        pipe = self._outgoing
        with self._sending:
            view = memoryview(item)
            while view:
                if self._is_closed:
                    await self._end()
                if pipe.is_abandoned or pipe.is_ended:
                    raise anyio.BrokenResourceError
                room = _BUFFER_BYTES - len(pipe.content)
                if room > 0:
                    pipe.content += view[:room]
                    view = view[room:]
                    pipe.tell()
                else:
                    await pipe.wait()

    async def send_eof(self) -> None:
        """Say that nothing more will be sent; receiving goes on."""
        with self._sending:
            if self._is_closed:
                return
            self._outgoing.is_ended = True
            self._outgoing.tell()
        await self._let_others_run()

    async def aclose(self) -> None:
        """Close both directions; again does nothing."""
        self.close()
        await self._let_others_run()

    def close(self) -> None:
        """Close both directions at once, as when the process ends."""
        if self._is_closed:
            return
        self._is_closed = True
        self._outgoing.is_ended = True
        self._outgoing.is_reset = bool(self._incoming.content)
        self._incoming.is_abandoned = True
        self._incoming.content.clear()
        self._outgoing.tell()
        self._incoming.tell()
        if self.on_close is not None:
            self.on_close(self)

    def fence(self) -> None:
        """The process is dead: the other end finds this one closed; calls on this one never return."""
        self._is_fenced = True
        self.close()

    async def _end(self) -> NoReturn:
        if self._is_fenced:
            await self.once_dead()
        raise anyio.ClosedResourceError


def connected_pair(let_others_run: OneTurn) -> tuple[SimStream, SimStream]:
    """Two ends of a connection; socketpair(2)."""
    there, back = _Pipe(), _Pipe()
    return SimStream(back, there, let_others_run), SimStream(there, back, let_others_run)
