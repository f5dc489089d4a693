"""The watch over an actor's live sandbox: what ends in it is fed to the actor's loop, and so is that nobody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs

from statemachine import events as e
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from supervisor.logs import said_of
from supervisor.step_runner import internal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from statemachine.events import Event
    from supervisor.step_runner import Performer


@attrs.define
class Watching:
    """The watch of one actor, of whose sandboxes one lives at a time. `feed` takes what is seen."""

    performer: Performer
    feed: Callable[[Event], Awaitable[None]]
    _scope: anyio.CancelScope | None = attrs.field(default=None, init=False)

    def start(self, children: TaskGroup, log: Any) -> None:
        """Watch the sandbox that lives now."""
        self._scope = anyio.CancelScope()
        children.start_soon(self._watch, self._scope, log, name="watch")

    def stop(self) -> None:
        """Its end is expected from here on."""
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _watch(self, scope: anyio.CancelScope, log: Any) -> None:
        with scope, said_of(log):
            try:
                await self.performer.watch(self.feed)
            except ProblemError as error:
                await self.feed(e.SandboxDied(problem=error.problem))
            except Exception as error:
                # A sandbox that nobody watches would be Running for ever.
                log.exception("fault", reason=str(Reason.INTERNAL))
                await self.feed(e.SandboxDied(problem=internal(Step.SUPERVISE, "the watch", error)))
