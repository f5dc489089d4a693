"""The events that wait for one actor's loop, with those who wait for their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from actors.assignment import WorkerAssignment
    from statemachine.actor import Actor, Snapshot
    from statemachine.events import Event
    from statemachine.machine import Outcome
    from supervisor.step_runner import RunningStep

QUEUE_SIZE: Final = 256
"""Events that may wait for the loop; a sender beyond that waits too."""


class ClosedMailboxError(Exception):
    """Raised when the life is over: nobody takes this event any more."""


@attrs.frozen(kw_only=True)
class Adoption:
    """A higher generation to go on with, should the machine not refuse its event.

    Attributes:
        assignment: the new one.
        actor: what the machine remembers of it (restart policy, grace, probe).
        source: the snapshot that a request to run by it would restore.
    """

    assignment: WorkerAssignment
    actor: Callable[[Actor], Actor]
    source: Snapshot | None = None


@attrs.define(eq=False)
class Letter:
    """One queued event.

    Attributes:
        event: the fact or request.
        step: the step whose answer it is.
        adoption: what a document's request brings along.
        answered: fired once it was taken, or never will be.
        outcome: what the machine said; None when it was not taken.
    """

    event: Event
    step: RunningStep | None = None
    adoption: Adoption | None = None
    answered: anyio.Event = attrs.field(factory=anyio.Event)
    outcome: Outcome | None = None


class Mailbox:
    """First come, first served, for one reader."""

    def __init__(self) -> None:
        self._send: MemoryObjectSendStream[Letter]
        self._receive: MemoryObjectReceiveStream[Letter]
        self._send, self._receive = anyio.create_memory_object_stream[Letter](QUEUE_SIZE)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._receive.statistics().current_buffer_used

    async def put(self, letter: Letter) -> None:
        """Queue a letter; waits while the queue is full.

        Raises:
            ClosedMailboxError: the life is over.
        """
        try:
            await self._send.send(letter)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise ClosedMailboxError from None

    async def take(self) -> Letter:
        """The next letter."""
        return await self._receive.receive()

    def close(self) -> None:
        """Take nothing any more; who waits for an answer learns that there will be none."""
        self._send.close()
        while True:
            try:
                self._receive.receive_nowait().answered.set()
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
        self._receive.close()
