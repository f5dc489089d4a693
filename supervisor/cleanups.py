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
    """The tries of one actor, of which never more than one is to come. `feed` takes the fact that it is due."""

    feed: Callable[[Event], Awaitable[None]]
    tries: int = attrs.field(default=0, init=False)
    _is_to_come: bool = attrs.field(default=False, init=False)

    def see_to(self, actor: Actor, children: TaskGroup, log: Any) -> None:
        """Where the actor has come to: at rest with something left, it is tried again."""
        if actor.state not in INACTIVE:
            return
        if not actor.held:
            self.tries = 0
            return
        if self._is_to_come:
            return  # it is told of something else meanwhile, as of the upload of its snapshot
        self._is_to_come = True
        again_s = min(AGAIN_S * 2.0**self.tries, AGAIN_MAX_S)
        self.tries += 1
        reason = None if actor.problem is None else str(actor.problem.reason)
        log.warning("cleanup", held=[str(held) for held in actor.held], reason=reason, in_s=again_s)
        children.start_soon(self._later, again_s, name="cleanup")

    async def _later(self, again_s: float) -> None:
        await anyio.sleep(again_s)
        self._is_to_come = False
        try:
            await self.feed(CleanupDue())
        except ClosedMailboxError:
            return  # the life is over
