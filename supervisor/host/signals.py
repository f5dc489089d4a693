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
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import lowlevel

from supervisor.host.background import open_background
from supervisor.inbox import SignalInbox, require_catchable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator
    from types import FrameType

_DRAIN_BYTES: Final = 1 << 16


@contextmanager
def interrupting(*signums: int) -> Iterator[None]:
    """Let these signals interrupt as Ctrl-C does, so that what stands is undone; one that is ignored stays ignored."""
    heard = [signum for signum in signums if signal.getsignal(signum) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, signal.default_int_handler) for signum in heard}
    try:
        yield
    finally:
        for signum, disposition in before.items():
            # None: it was not Python that installed it, so it cannot be had back.
            signal.signal(signum, disposition or signal.SIG_DFL)


class HostSignals:
    """The real `Signals`. Only in the main thread, as Python has it, and only while it is open.

    Args:
        ignored_afterwards: signals that are ignored once their last receiver has left, in place of what was done with
            them before: who asks a second time must not end a process that is about to leave.
    """

    def __init__(self, *, ignored_afterwards: Collection[int] = ()) -> None:
        self._ignored_afterwards = frozenset(ignored_afterwards)
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
        require_catchable(signums)
        await lowlevel.checkpoint()
        inbox = SignalInbox()
        with ExitStack() as stack:
            for signum in dict.fromkeys(signums):
                stack.enter_context(self.passing_on(signum, inbox.put))
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
                before = self._dispositions.pop(signum) or signal.SIG_DFL
                signal.signal(signum, signal.SIG_IGN if signum in self._ignored_afterwards else before)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        self._came[signum] = None

    async def _pass_on_all(self, reader: socket.socket) -> None:
        while True:
            await anyio.wait_readable(reader)
            with suppress(BlockingIOError):
                reader.recv(_DRAIN_BYTES)
            self._pass_on()

    def _pass_on(self) -> None:
        # One call copies the keys, so that no handler comes in between: an iterator would find the dictionary changed.
        while came := list(self._came):
            signum = came[0]
            del self._came[signum]
            for deliver in tuple(self._receivers.get(signum, ())):
                deliver(signum)
