"""Signals to a simulated process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import lowlevel

from supervisor.inbox import SignalInbox, require_catchable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class SimSignals:
    """The simulated `Signals` of one life of a process; the world sends with `deliver`."""

    def __init__(self) -> None:
        self._receivers: dict[int, list[SignalInbox]] = {}

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
        require_catchable(signums)
        await lowlevel.checkpoint()
        inbox = SignalInbox()
        distinct = tuple(dict.fromkeys(signums))
        for signum in distinct:
            self._receivers.setdefault(signum, []).append(inbox)
        try:
            yield inbox
        finally:
            for signum in distinct:
                self._receivers[signum].remove(inbox)
