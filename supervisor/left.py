"""What became of every actor when its worker left: the last line of the log, and whether all is as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State

if TYPE_CHECKING:
    from statemachine.actor import Snapshot
    from supervisor.draining import Drained
    from supervisor.worker import Worker

NAMED_MAX: Final = 5
"""So many actors are named in a sentence; the log's last line has all."""


@attrs.frozen(kw_only=True)
class LeftActor:
    """One actor.

    Attributes:
        uid: whose.
        state: where it was when the worker left.
        problem: why it is not what was wanted, or has ended.
        snapshot: the last that is good.
        is_owed: whether there is a store that this has not reached.
    """

    uid: str
    state: State
    problem: Problem | None
    snapshot: Snapshot | None
    is_owed: bool

    def as_json(self) -> dict[str, str | None]:
        """For the log."""
        return {
            "state": str(self.state),
            "reason": None if self.problem is None else str(self.problem.reason),
            "snapshot": None if self.snapshot is None else self.snapshot.id,
            "storedUri": None if self.snapshot is None else self.snapshot.stored_uri,
        }


@attrs.frozen(kw_only=True)
class Left:
    """Every actor that a worker left.

    Attributes:
        actors: those that had not ended before the end was asked for, by uid.
        not_recovered: those that an earlier life of the worker left and this one had no time to look at.
        late: those that the drain stopped because the time for suspends was over.
        killed: those that it killed because they did not end.
    """

    actors: tuple[LeftActor, ...]
    not_recovered: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()

    @property
    def not_uploaded(self) -> tuple[str, ...]:
        """Whose snapshots have not reached their store."""
        return tuple(each.uid for each in self.actors if each.is_owed)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the end was not as it should be; none when it was."""
        found: list[Problem] = []
        active = tuple(each.uid for each in self.actors if each.state not in INACTIVE)
        late = (
            (active, "had not ended when the worker left"),
            (self.killed, "did not end in time, and had to be killed"),
            (self.late, "had to be stopped before their suspend had ended or begun"),
        )
        told = [f"{_named(uids)} {what}" for uids, what in late if uids]
        if told:
            message = f"the time of the drain was over: {'; '.join(told)}"
            found.append(_problem(Reason.STEP_DEADLINE_EXCEEDED, message))
        if self.not_uploaded:
            message = f"the worker left before the last snapshot of {_named(self.not_uploaded)} was in its store"
            found.append(_problem(Reason.SNAPSHOT_NOT_UPLOADED, message))
        return tuple(found)

    def as_json(self) -> dict[str, dict[str, str | None]]:
        """Each of them, by uid."""
        return {each.uid: each.as_json() for each in self.actors}


def left_by(worker: Worker, drained: Drained | None, not_recovered: tuple[str, ...]) -> Left:
    """Look at every life of a worker that leaves.

    Args:
        worker: it; nothing of it runs any more.
        drained: what came of its drain; None when a fault ended it.
        not_recovered: actors on the disk that it has no life for.
    """
    return Left(
        actors=tuple(
            LeftActor(
                uid=life.uid,
                state=life.actor.state,
                problem=life.actor.problem,
                snapshot=life.actor.last_good,
                is_owed=worker.uploads.owes(life),
            )
            for life in worker.lives
            if drained is None or life.uid in drained.found or worker.uploads.owes(life)
        ),
        not_recovered=not_recovered,
        late=() if drained is None else drained.late,
        killed=() if drained is None else drained.killed,
    )


def _named(uids: list[str] | tuple[str, ...]) -> str:
    """Some of them by name, and how many more."""
    some, more = ", ".join(uids[:NAMED_MAX]), len(uids) - NAMED_MAX
    return f"{some} and {more} more" if more > 0 else some


def _problem(reason: Reason, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject="drain", message=message)
