"""The logs hear where each actor is: kept while it lives, told to their ends when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from supervisor.observing import Nobody

if TYPE_CHECKING:
    from statemachine.actor import Actor
    from statemachine.events import Event
    from supervisor.log_files import LineOutput, LogFiles
    from supervisor.log_keeping import LogKeeper
    from supervisor.worker import Worker


@attrs.frozen(kw_only=True)
class LogWorld:
    """What keeping logs needs of the world.

    Attributes:
        files: tells of writes, and cuts.
        output: where containers' lines are told; None tells none.
    """

    files: LogFiles
    output: LineOutput | None = None


class LogsHear(Nobody):
    """Hears of every actor, for the keeper of the logs. `worker` is whose actors they are."""

    def __init__(self, keeper: LogKeeper) -> None:
        self.keeper = keeper
        self.worker: Worker | None = None

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:  # noqa: ARG002 - the protocol's
        """An actor is somewhere else, or has begun."""
        if self.worker is None:
            return
        life = self.worker.find(uid)
        if life is not None:
            self.keeper.settle(life.assignment, actor.state)
        if event is None:
            for each in self.keeper.known:
                if self.worker.find(each) is None:
                    self.keeper.forget(each)
