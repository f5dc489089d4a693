"""Signals to a simulated process."""

from __future__ import annotations

import signal
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio import lowlevel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PENDING_MAX: Final = 64
_CATCHABLE: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


class SimSignals:
    """The simulated `Signals` of one life of a process; the world sends with `deliver`."""

    def __init__(self) -> None:
        self._receivers: dict[int, list[_Inbox]] = {}

    def deliver(self, signum: int) -> bool:
        """Send a signal; False when nobody handles it, so that the kernel does by default what signal(7) says."""
        inboxes = self._receivers.get(signum, ())
        for inbox in inboxes:
            inbox.put(signum)
        return bool(inboxes)

    @asynccontextmanager
    async def receive(self, *signums: int) -> AsyncIterator[AsyncIterator[int]]:
        """The signals that come while the context is open, each handled from the moment it is entered.

        Raises:
            ValueError: the signal cannot be handled (SIGKILL, SIGSTOP, no signal at all).
        """
        if unfit := set(signums) - _CATCHABLE:
            raise ValueError(f"no signals that can be handled: {sorted(unfit)}")
        await lowlevel.checkpoint()
        inbox = _Inbox()
        distinct = tuple(dict.fromkeys(signums))
        for signum in distinct:
            self._receivers.setdefault(signum, []).append(inbox)
        try:
            yield inbox
        finally:
            for signum in distinct:
                self._receivers[signum].remove(inbox)


class _Inbox:
    """Signals that have come and are not yet taken."""

    def __init__(self) -> None:
        self._pending: deque[int] = deque(maxlen=_PENDING_MAX)
        self._came = anyio.Event()

    def put(self, signum: int) -> None:
        self._pending.append(signum)
        self._came.set()

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> int:
        await lowlevel.checkpoint()
        while not self._pending:
            if self._came.is_set():
                self._came = anyio.Event()
            await self._came.wait()
        return self._pending.popleft()
