"""What is told of a life: its journal, and the same in the worker's log. A life is worth more than its story."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.journal import Journal, Mark
    from statemachine.actor import Actor
    from statemachine.events import Event
    from statemachine.machine import Transition


class Chronicle:
    """Writes down what happens to one actor. Only the beginning must succeed; later, what cannot be written is told.

    Args:
        journal: of this life.
        log: says whose life it is.
    """

    def __init__(self, journal: Journal, log: Any) -> None:
        self._journal, self._log = journal, log

    def tell_to(self, log: Any) -> None:
        """Go on with a log that says another generation."""
        self._log = log

    def follow(self, generation: int) -> None:
        """From the next line on it is written down that this generation's wish was acted on."""
        self._journal.generation = generation

    async def begin(self, actor: Actor, *, since_s: float) -> None:
        """Begin the journal.

        Raises:
            OSError: it cannot be written.
        """
        await self._journal.begin(actor, since_s=since_s)

    async def record(self, before: Actor, event: Event, transition: Transition, *, since_s: float) -> None:
        """Write a transition down."""
        with self._unwritten_is_told():
            await self._journal.record(before, event, transition, since_s=since_s)

    async def rebase(self, actor: Actor, *, since_s: float) -> None:
        """Write down what is true, whatever came before."""
        with self._unwritten_is_told():
            await self._journal.rebase(actor, since_s=since_s)

    async def compact(self, actor: Actor, *, since_s: float) -> None:
        """Let the journal begin anew with what is true when it has become long."""
        with self._unwritten_is_told():
            await self._journal.compact(actor, since_s=since_s)

    async def mark(self, mark: Mark) -> None:
        """Write down a progress mark of the running step."""
        with self._unwritten_is_told():
            await self._journal.mark(mark)

    def tell(self, before: Actor, actor: Actor, event: Event | None) -> None:
        """Log a transition, and the problem that came with it."""
        fields: dict[str, object] = {
            "from": str(before.state),
            "to": str(actor.state),
            "event_type": None if event is None else type(event).__name__,  # a life begins by itself
        }
        if actor.problem is not None and actor.problem is not before.problem:
            problem = actor.problem
            fields |= {
                "reason": str(problem.reason),
                "step": str(problem.step),
                "subject": problem.subject,
                "message": problem.message,
            }
            if problem.detail:
                fields["detail"] = problem.detail
        self._log.info("transition", **fields)

    @contextmanager
    def _unwritten_is_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._log.error("unwritten", reason=str(Reason.STATE_UNWRITABLE), message=error.strerror or str(error))
