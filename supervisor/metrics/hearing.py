"""The one observer that counts: every transition, step, failure, refusal and upload comes through here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachine.commands import STEP_OF_COMMAND
from statemachine.events import BackoffElapsed
from statemachine.problem import Step
from supervisor.metrics import catalogue as m
from supervisor.metrics.tallies import Durations, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statemachine.actor import Actor
    from statemachine.commands import Command
    from statemachine.events import Event
    from statemachine.problem import Problem
    from supervisor.metrics.tallies import Family
    from supervisor.observing import Ending


class Counts:
    """The `Observer` of a worker's metrics."""

    def __init__(self) -> None:
        self._transitions, self._failures = Tally(m.TRANSITIONS), Tally(m.FAILURES)
        self._notices, self._restarts, self._refusals = Tally(m.NOTICES), Tally(m.RESTARTS), Tally(m.REFUSALS)
        self._steps = Durations(m.STEP_DURATION)
        self._admissions = Durations(m.ADMISSION_DURATION, ("admitted",), ("refused",))
        self._uploads = Durations(m.UPLOAD_DURATION, ("stored",), ("failed",))

    def entered(self, uid: str, before: Actor, actor: Actor, event: Event | None) -> None:  # noqa: ARG002 - the protocol's: no series is an actor's
        """An actor has changed, or has begun."""
        if event is not None and before.state is not actor.state:
            self._transitions.add(before.state, actor.state)
        if isinstance(event, BackoffElapsed):
            self._restarts.add()
        problem = actor.problem
        if problem is not None and problem is not before.problem:
            self._failures.add(problem.step, problem.reason)

    def step_ended(
        self,
        uid: str,  # noqa: ARG002 - as above
        command: Command,
        ending: Ending,
        elapsed_s: float,
        problem: Problem | None,  # noqa: ARG002 - what comes of it is counted in `entered`
    ) -> None:
        """A step has ended."""
        self._steps.add(STEP_OF_COMMAND.get(type(command), Step.SUPERVISE), ending, elapsed_s=elapsed_s)

    def troubled(self, uid: str, problem: Problem, count: int) -> None:  # noqa: ARG002 - as above
        """A trouble came so often with which an actor runs on."""
        self._notices.add(problem.reason, count=count)

    def judged(self, *, is_admitted: bool, elapsed_s: float) -> None:
        """A document was admitted or not."""
        self._admissions.add("admitted" if is_admitted else "refused", elapsed_s=elapsed_s)

    def refused(self, problems: Iterable[Problem]) -> None:
        """A request or a document was refused."""
        for problem in problems:
            self._refusals.add(problem.reason)

    def upload_ended(self, *, is_there: bool, elapsed_s: float) -> None:
        """A try to bring a snapshot to its store has ended."""
        self._uploads.add("stored" if is_there else "failed", elapsed_s=elapsed_s)

    def families(self) -> tuple[Family, ...]:
        """All of it, in the order of the catalogue."""
        kept = (
            self._transitions, self._steps, self._failures, self._notices, self._restarts, self._refusals,
            self._admissions, self._uploads,
        )  # fmt: skip
        return tuple(each.family() for each in kept)
