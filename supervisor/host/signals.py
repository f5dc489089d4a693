"""Signals to our process, for any number of receivers of the same signal. The reaper is one of them, for SIGCHLD.

Not by anyio.open_signal_receiver, for two reasons. On asyncio a second handler for a signal replaces the first one, and
leaving it removes both. And asyncio learns of a signal only by a byte in a socket that takes some 280 of them: when
thousands of children end while the loop is busy for a moment, that socket is full of SIGCHLD, Python complains on
stderr, and a SIGTERM that comes then is lost (measured on Python 3.11, Linux 6.18; trio does not depend on the byte).

Here the byte only wakes the loop up. Which signals came is noted by Python's handler, which runs in the main thread for
every kind of signal that came, however many bytes found no room.

Source: signal.set_wakeup_fd; Modules/signalmodule.c, trip_signal: the note to run the handler is made before the byte
is written, and the handler runs at the latest when the next Python function begins.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import lowlevel

from supervisor.host.background import open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import FrameType

# The kernel itself keeps one pending signal of a kind; who lets this many wait does not count them.
_PENDING_MAX: Final = 64
_DRAIN_BYTES: Final = 1 << 16
_CATCHABLE: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


class HostSignals:
    """The real `Signals`. Only in the main thread, as Python has it, and only while it is open."""

    def __init__(self) -> None:
        self._receivers: dict[int, list[Callable[[int], None]]] = {}
        self._dispositions: dict[int, Any] = {}
        # In the order in which they came first; written by Python's handler, at any point of the main thread.
        self._came: dict[int, None] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Pass signals on to the receivers until the context is left."""
        reader, writer = socket.socketpair()
        with reader, writer:
            reader.settimeout(0)
            writer.settimeout(0)
            before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            try:
                async with open_background() as tasks:
                    tasks.start_soon(self._pass_on_all, reader)
                    yield
            finally:
                # What it was: trio has one of its own, with the same option.
                signal.set_wakeup_fd(before, warn_on_full_buffer=False)

    @asynccontextmanager
    async def receive(self, *signums: int) -> AsyncIterator[AsyncIterator[int]]:
        """The signals that come while the context is open; the handlers are installed when it has been entered.

        Raises:
            ValueError: the signal cannot be handled (SIGKILL, SIGSTOP, no signal at all).
        """
        if unfit := set(signums) - _CATCHABLE:
            raise ValueError(f"no signals that can be handled: {sorted(unfit)}")
        await lowlevel.checkpoint()
        inbox = _Inbox()
        with ExitStack() as stack:
            for signum in dict.fromkeys(signums):
                stack.enter_context(self.passing_on(signum, inbox.deliver))
            yield inbox

    @contextmanager
    def passing_on(self, signum: int, deliver: Callable[[int], None]) -> Iterator[None]:
        """Call `deliver` in the loop when the signal has come, once or more often; it must not raise."""
        receivers = self._receivers.setdefault(signum, [])
        if not receivers:
            self._dispositions[signum] = signal.signal(signum, self._note)
            # What C code waits for in any thread goes on by itself.
            signal.siginterrupt(signum, False)  # noqa: FBT003  it takes no keyword
        receivers.append(deliver)
        try:
            yield
        finally:
            receivers.remove(deliver)
            if not receivers:
                # None: it was not Python that installed it, so it cannot be had back.
                signal.signal(signum, self._dispositions.pop(signum) or signal.SIG_DFL)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        self._came[signum] = None

    async def _pass_on_all(self, reader: socket.socket) -> None:
        while True:
            await anyio.wait_readable(reader)
            with suppress(BlockingIOError):
                reader.recv(_DRAIN_BYTES)
            self._pass_on()

    def _pass_on(self) -> None:
        while self._came:
            signum = next(iter(self._came))
            del self._came[signum]
            for deliver in tuple(self._receivers.get(signum, ())):
                deliver(signum)


class _Inbox:
    """Signals that have come and are not yet taken."""

    def __init__(self) -> None:
        self._pending: deque[int] = deque(maxlen=_PENDING_MAX)
        self._came = anyio.Event()

    def deliver(self, signum: int) -> None:
        self._pending.append(signum)
        self._came.set()

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> int:
        await lowlevel.checkpoint()
        while not self._pending:
            self._came = anyio.Event()
            await self._came.wait()
        return self._pending.popleft()
