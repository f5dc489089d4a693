"""Whether a worker takes on another actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachine.problem import ProblemError
from statemachine.states import State
from supervisor.refusals import full

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.life import Life


class Room:
    """How many more there may be.

    Whoever has ended is remembered for a day, so there may be many more lives than actors. They are counted only when
    as many have come as there was room for when they were counted last: whoever ends meanwhile makes more.
    """

    def __init__(self) -> None:
        self._spare = 0
        self._limit = 0

    def require(self, lives: Mapping[str, Life], uid: str, limit: int) -> None:
        """Refuse when this actor does not fit beside the others. One that will begin anew keeps its place.

        Raises:
            ProblemError: WorkerFull.
        """
        if len(lives) < limit:
            self._spare = 0  # whoever comes now is not counted: what was counted before does not hold any more
            return
        if limit == self._limit and self._spare > 0:
            self._spare -= 1
            return
        others = (life for other, life in lives.items() if other != uid)
        here = sum(life.actor.state is not State.TERMINATED or life.begins_anew for life in others)
        if here >= limit:
            raise ProblemError(full(here, limit))
        self._limit, self._spare = limit, limit - here - 1

    def count_anew(self) -> None:
        """Somebody has come who was not asked about."""
        self._spare = 0
