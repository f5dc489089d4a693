"""The events that wait for one actor's loop, with those who wait for their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import attrs
from anyio import lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._letters: list[Letter] = []
        self._is_closed = False
        self._moved: anyio.Event | None = None

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._letters

    async def put(self, letter: Letter) -> None:
        """Queue a letter; waits while the queue is full.

        Raises:
            ClosedMailboxError: the life is over.
        """
        while len(self._letters) >= QUEUE_SIZE and not self._is_closed:
            await self._move()
        if self._is_closed:
            raise ClosedMailboxError
        self._letters.append(letter)
        self._tell()

    async def take(self) -> Letter:
        """The next letter."""
        if self._letters:
            await lowlevel.checkpoint()
        while not self._letters:
            await self._move()
        self._tell()
        return self._letters.pop(0)

    def close(self) -> None:
        """Take nothing any more; who waits for an answer learns that there will be none."""
        self._is_closed = True
        while self._letters:
            self._letters.pop(0).answered.set()
        self._tell()

    async def _move(self) -> None:
        """Wait until something has come or gone."""
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    def _tell(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None
