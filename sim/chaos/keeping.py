"""The keeper: starts another worker whenever one has ended, as a kubelet does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.scenario import Stage
    from sim.world.incarnation import Incarnation

AGAIN_S: Final = 2.0
"""Before a worker is started anew that has ended by itself."""
LIVES_MAX: Final = 200
"""So many workers of one run are enough: they end as soon as they are started."""


class Keeper:
    """Keeps a worker on a stage.

    Args:
        here: the stage.
        tell_crash: is told of a worker that has ended by a fault of its own.
        tell_left: is told of an actor that one has left in the middle of something.
        note: is called before another one is started.

    Attributes:
        down_s: how long there is none after the next end.
    """

    def __init__(
        self,
        here: Stage,
        tell_crash: Callable[[str], None],
        tell_left: Callable[[str, str], None],
        note: Callable[[], None],
    ) -> None:
        self.down_s = AGAIN_S
        self._note = note
        self._here = here
        self._tell_crash, self._tell_left = tell_crash, tell_left
        self._machine = trio.Lock()

    async def run(self) -> None:
        """Go on until this is cancelled, or until too many workers have ended."""
        for _ in range(LIVES_MAX):
            worker = self._here.worker
            await worker.ended.wait()
            self._judge(worker)
            down_s, self.down_s = self.down_s, AGAIN_S
            await trio.sleep(down_s)
            async with self._machine:
                self._note()
                self._here.world.start()

    async def reboot(self) -> None:
        """Cut the power."""
        async with self._machine:
            await self._here.world.reboot()

    def _judge(self, worker: Incarnation) -> None:
        """A worker may give up for a reason; anything else that it ends with is a crash.

        One that was asked to end, and has ended well, has brought everybody to rest, and has told so.
        """
        error = worker.error
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is None:
            self._look_at_last_words(worker)
            return
        if not isinstance(error, ProblemError) or error.problem.reason is Reason.INTERNAL:
            self._tell_crash(f"worker {worker.number} ended with {error!r}")

    def _look_at_last_words(self, worker: Incarnation) -> None:
        said = [line for line in self._here.world.hearing.said if line.incarnation == worker.number]
        if not said or said[-1].event != "left":
            return  # it was killed, or had not begun
        for uid, told in said[-1].fields["actors"].items():
            if State(told["state"]) not in INACTIVE:
                self._tell_left(uid, f"was left {told['state']} by worker {worker.number}, which has ended well")
            if (what := self._not_saved(worker.number, uid)) is not None:
                self._tell_left(uid, what)

    def _not_saved(self, number: int, uid: str) -> str | None:
        """Who runs when a drain comes to it is suspended, unless the time is over; says what was done instead."""
        hearing = self._here.world.hearing
        late_s = min(
            (said.at_s for said in hearing.said if said.incarnation == number and said.event == "stopping"),
            default=math.inf,
        )
        moves = (move for move in hearing.moves if move.incarnation == number and move.actor == uid)
        first = next((move for move in moves if move.event == "DrainRequested"), None)
        if first is None or first.before != State.RUNNING or first.after == State.SUSPENDING or first.at_s >= late_s:
            return None
        return f"was Running when worker {number} was to end, and is {first.after} instead of being suspended"
