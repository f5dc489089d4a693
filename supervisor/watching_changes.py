"""For whoever watches the worker: a number that grows with whatever happens on it, and can be waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statemachine.actor import Actor
    from statemachine.commands import Command
    from statemachine.events import Event
    from statemachine.problem import Problem
    from supervisor.observing import Ending

WAIT_MAX_S: Final = 60.0
"""Whoever waits longer asks again: so a client that has gone is not waited with for long."""


class Changes:
    """Hears all that happens; `number` says how often something did."""

    def __init__(self) -> None:
        self.number = 0
        self._changed = anyio.Event()

    async def later_than(self, number: int, *, wait_s: float) -> int:
        """Wait until something has happened after that; the number now, also when nothing has in time.

        A number that is still to come is none of ours, but of an earlier worker's: then nothing is waited for.
        """
        with anyio.move_on_after(wait_s):
            while self.number == number:
                await self._changed.wait()
        return self.number

    def _count(self) -> None:
        self.number += 1
        self._changed.set()
        self._changed = anyio.Event()

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:  # noqa: ARG002 - the protocol's
        """Something happened."""
        self._count()

    def step_ended(self, uid: str, command: Command, ending: Ending, elapsed_s: float, problem: Problem | None) -> None:
        """What is told of that, if anything, is told by the transition that follows."""

    def troubled(self, uid: str, problem: Problem, count: int) -> None:  # noqa: ARG002 - the protocol's
        """Something happened."""
        self._count()

    def judged(self, *, is_admitted: bool, elapsed_s: float) -> None:  # noqa: ARG002 - the protocol's
        """Something happened."""
        self._count()

    def refused(self, problems: Iterable[Problem]) -> None:  # noqa: ARG002 - the protocol's
        """Something happened."""
        self._count()

    def upload_ended(self, *, is_there: bool, elapsed_s: float) -> None:  # noqa: ARG002 - the protocol's
        """Something happened."""
        self._count()
