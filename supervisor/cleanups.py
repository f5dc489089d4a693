"""What a cleanup that failed has left of an actor at rest: undone again, later and later, until it is gone.

The snapshot is proven, or the actor has ended: nothing of it can be lost any more. What is left holds room, and GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from statemachine.events import CleanupDue
from statemachine.states import INACTIVE
from supervisor.mailbox import ClosedMailboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from statemachine.actor import Actor
    from statemachine.events import Event

AGAIN_S: Final = 5.0
"""Before the first try; doubled each time."""
AGAIN_MAX_S: Final = 60.0


@attrs.define
class Cleanups:
    """The tries of one actor. `feed` takes the fact that one is due."""

    feed: Callable[[Event], Awaitable[None]]
    tries: int = attrs.field(default=0, init=False)

    def see_to(self, actor: Actor, children: TaskGroup, log: Any) -> None:
        """Where the actor has come to: at rest with something left, it is tried again."""
        if actor.state not in INACTIVE:
            return
        if not actor.held:
            self.tries = 0
            return
        again_s = min(AGAIN_S * 2.0**self.tries, AGAIN_MAX_S)
        self.tries += 1
        reason = None if actor.problem is None else str(actor.problem.reason)
        log.warning("cleanup", held=[str(held) for held in actor.held], reason=reason, in_s=again_s)
        children.start_soon(self._later, again_s, name="cleanup")

    async def _later(self, again_s: float) -> None:
        await anyio.sleep(again_s)
        try:
            await self.feed(CleanupDue())
        except ClosedMailboxError:
            return  # the life is over
