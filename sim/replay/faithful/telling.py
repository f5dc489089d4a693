"""What the supervisors of a fleet tell, put into the account of the replay: steps, activations, suspends, held GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from sim.guard import beyond
from sim.replay.accounting import NO_TROUBLE, WAIT
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, STARTING, STEP_OF, State

if TYPE_CHECKING:
    from sim.fleet.facts import ResumeActor, StartActor
    from sim.hearing import Moved
    from sim.replay.accounting import Account
    from sim.replay.results import MoveSink

HOLDING: Final = frozenset(
    {
        State.PARTITIONING,
        State.INJECTING,
        State.CREATING,
        State.RESTORING,
        State.VERIFYING,
        State.RUNNING,
        State.SUSPENDING,
        State.RELEASING,
        State.THAWING,
        State.STOPPING,
        State.ROLLING_BACK,
    }
)
"""The states in which the GPUs that an actor claims are its own, as far as can be seen from outside."""
ENDING: Final = frozenset({State.STOPPING, State.ROLLING_BACK})
BEGUN: Final = "Assignment"
"""What stands for the event with which a life on a worker begins."""


@attrs.define(eq=False)
class _Life:
    """An actor on one worker.

    Attributes:
        gpus: what it claims. holds: whether it has them.
        since_s: when it came to the state that it is in.
        asked_s: when the activation that is under way was asked for, if one is. steps: what it has taken so far.
        suspends_s: since when it is being suspended.
    """

    gpus: int
    holds: bool = False
    since_s: float = 0.0
    asked_s: float | None = None
    steps: dict[str, float] = attrs.field(factory=dict)
    suspends_s: float | None = None


class Telling:
    """Takes down every transition, and passes it on.

    Args:
        account: of the replay.
        sink: whoever else wants to hear of it.

    Attributes:
        failure: what the sink raised; it is not told any more.
    """

    def __init__(self, account: Account, sink: MoveSink | None) -> None:
        self._account = account
        self.failure: Exception | None = None
        self._sink = sink
        self._lives: dict[tuple[str, str], _Life] = {}

    def ordered(self, at_s: float, order: StartActor | ResumeActor, gpus: int) -> None:
        """An activation is ordered."""
        life = self._lives.setdefault((order.worker, order.actor), _Life(gpus))
        life.asked_s, life.steps = order.asked_s, {}
        life.since_s = at_s
        self._account.began(order.snapshot_from)
        waited_s = at_s - order.asked_s
        life.steps[WAIT] = waited_s
        self._account.step(WAIT).add(waited_s)

    def moved(self, worker: str, actor: str, moved: Moved) -> None:
        """An actor's supervisor has told of a transition."""
        before, after, at_s = State(moved.before), State(moved.after), moved.at_s
        account = self._account
        account.machine_events += moved.event is not None
        account.transitions += 1
        reason = None if moved.reason is None else Reason(moved.reason)
        if reason is not None and reason not in NO_TROUBLE:
            account.failed(str(reason))
        life = self._lives.get((worker, actor))
        if life is not None:
            self._count(life, worker, actor, before, after, at_s)
        if self._sink is not None:
            event = moved.event or BEGUN
            try:
                with beyond():
                    self._sink.moved(at_s, worker, actor, before if moved.event else None, event, after, reason)
            except Exception as error:  # noqa: BLE001 - raised by who conducts: it is none of the supervisor that speaks
                self.failure, self._sink = error, None

    def worker_gone(self, at_s: float, worker: str) -> None:
        """Every life on it is over."""
        for key in [key for key in self._lives if key[0] == worker]:
            life = self._lives.pop(key)
            if life.holds:
                self._account.held(at_s, worker, -life.gpus)

    def _count(self, life: _Life, worker: str, actor: str, before: State, after: State, at_s: float) -> None:  # noqa: PLR0917 - of one transition
        account = self._account
        took_s = at_s - life.since_s
        if before is not after:
            step = STEP_OF.get(before)
            if step is not None:
                account.step(str(step)).add(took_s)
                if life.asked_s is not None and before in STARTING:
                    life.steps[str(step)] = life.steps.get(str(step), 0.0) + took_s
            life.since_s = at_s
        if after is State.RUNNING and life.asked_s is not None:
            account.activated(at_s, life.asked_s, actor, worker, life.steps)
            life.asked_s = None
        if after is State.SUSPENDING and before is State.RUNNING:
            life.suspends_s = at_s
        elif after is State.SUSPENDED and life.suspends_s is not None:
            account.suspends.add(at_s - life.suspends_s)
            life.suspends_s = None
        holds = after in HOLDING and (life.holds or after not in ENDING)  # who is ended may have held none
        if holds != life.holds and life.gpus:
            life.holds = holds
            account.held(at_s, worker, life.gpus if life.holds else -life.gpus)
        if after is State.TERMINATED:
            del self._lives[worker, actor]
        elif after in INACTIVE:
            life.asked_s = None if after is State.SUSPENDED else life.asked_s
