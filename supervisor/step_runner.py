"""The running step of an actor: at most one, cancellable, and always ended before the next begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import attrs

from statemachine import commands as c
from statemachine import events as e
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.logs import said_of
from supervisor.observing import Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio import TaskHandle
    from anyio.abc import TaskGroup

    from actors.assignment import WorkerAssignment
    from actors.runsc.reclaiming import Survivor
    from statemachine.actor import Actor
    from statemachine.events import Event

CLEANUP_DEADLINE_S: Final = 90.0
"""How long a cancelled step's own shielded cleanup may take before the loop goes on without it."""


class Performer(Protocol):
    """Does what commands say. `actors.steps` is the real one."""

    async def perform(self, command: c.Command, actor: Actor) -> Event:
        """Run the step that the command names to its end and return the fact that came of it.

        Raises:
            ProblemError: the step failed; its own undo is done.
        """
        ...

    async def watch(self, feed: Callable[[Event], Awaitable[None]]) -> None:
        """Feed ContainerExited and SandboxDied of the live activation until it has ended or this is cancelled."""
        ...

    async def adopt(self, assignment: WorkerAssignment) -> None:
        """Go on with this assignment, written durably."""
        ...

    async def take_over(self, survivor: Survivor, actor: Actor) -> Actor:
        """Go on with a sandbox that outlived an earlier life of the worker; returns the actor as it is.

        Raises:
            ProblemError: it cannot be gone on with; nothing of it is owned.
        """
        ...

    def inherit(self, activation: str) -> None:
        """Take an activation of an earlier life of the worker for one's own, to be ended."""
        ...

    async def sandbox_fate(self) -> e.SandboxFate:
        """Whether the sandbox of the live activation lives."""
        ...


@attrs.define(eq=False)
class RunningStep:
    """One step, from its start until its answer is taken. `has_ended` once nothing of it runs any more."""

    command: c.Command
    has_ended: bool = attrs.field(default=False, init=False)
    task: TaskHandle[None] | None = attrs.field(default=None, init=False)
    _waited_for: anyio.Event | None = attrs.field(default=None, init=False)

    def end(self) -> None:
        """Nothing of it runs any more; its answer may still wait in the queue."""
        self.has_ended = True
        if self._waited_for is not None:
            self._waited_for.set()

    async def cancel(self) -> None:
        """Give it up, and wait for its end."""
        if self.has_ended or self.task is None:
            return
        self._waited_for = anyio.Event()
        self.task.cancel()
        await self._waited_for.wait()


@attrs.define(kw_only=True)
class StepRunner:
    """Runs an actor's steps. `answer` takes the fact that each ends with, and of which step it is.

    Attributes:
        current: the step whose answer is waited for; the answer of any other is late.
        ended: is told of each step how it ended, how many seconds it took, and with what problem it failed, if it did.
    """

    performer: Performer
    answer: Callable[[Event, RunningStep], Awaitable[None]]
    ended: Callable[[c.Command, Ending, float, Problem | None], None] = lambda *_: None
    current: RunningStep | None = attrs.field(default=None, init=False)

    def start(self, command: c.Command, actor: Actor, children: TaskGroup, log: Any) -> None:
        """Start a step as a child of the actor's scope."""
        running = RunningStep(command)
        self.current = running
        running.task = children.start_soon(self._run, running, actor, log, name=f"step:{type(command).__name__}")

    def settle(self) -> None:
        """The current step's answer is taken."""
        self.current = None

    async def cancel(self) -> None:
        """Give the current step up, if there is one: cancel it and wait until its own cleanup is done."""
        running, self.current = self.current, None
        if running is None:
            return
        with anyio.move_on_after(CLEANUP_DEADLINE_S):
            await running.cancel()

    async def _run(self, running: RunningStep, actor: Actor, log: Any) -> None:
        step = c.STEP_OF_COMMAND.get(type(running.command), Step.SUPERVISE)
        with said_of(log, step=str(step)):
            await self._run_told(running, actor, log)

    async def _run_told(self, running: RunningStep, actor: Actor, log: Any) -> None:
        name = type(running.command).__name__
        started, ending = anyio.current_time(), Ending.CANCELLED
        problem: Problem | None = None
        try:
            answer = await self._answer(running.command, actor, log)
            ending = Ending.DONE
            if isinstance(answer, e.FAILURES):
                ending, problem = Ending.FAILED, answer.problem
        finally:
            running.end()
            elapsed_s = anyio.current_time() - started
            log.debug("step", command=name, elapsed_s=round(elapsed_s, 4))
            self.ended(running.command, ending, elapsed_s, problem)
        await self.answer(answer, running)

    async def _answer(self, command: c.Command, actor: Actor, log: Any) -> Event:
        try:
            return await self.performer.perform(command, actor)
        except ProblemError as error:
            return e.StepFailed(problem=error.problem, sandbox=await self._fate(log))
        except Exception as error:
            # A fault of ours must end as a reason of this one actor, never as the end of the worker.
            log.exception("fault", command=type(command).__name__, reason=str(Reason.INTERNAL))
            step = c.STEP_OF_COMMAND.get(type(command), Step.SUPERVISE)
            problem = internal(step, type(command).__name__, error)
            return e.StepFailed(problem=problem, sandbox=await self._fate(log))

    async def _fate(self, log: Any) -> e.SandboxFate:
        """Whether the sandbox lives. Where that cannot be told it counts as alive: a thaw will show."""
        try:
            return await self.performer.sandbox_fate()
        except Exception:
            log.exception("fault", reason=str(Reason.INTERNAL))
            return e.SandboxFate.ALIVE


def internal(step: Step, subject: str, error: Exception) -> Problem:
    """A fault of ours as a reason."""
    return Problem(
        step=step,
        reason=Reason.INTERNAL,
        subject=subject,
        message=f"{subject} met {type(error).__name__}: {error}",
    )
