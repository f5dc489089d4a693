"""Which function performs which command. The supervisor's loop knows this class, and nothing of the steps behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import attrs

from actors.steps.assign import record_assignment, write_assignment
from actors.steps.create import create_sandbox
from actors.steps.release import release_sandbox
from actors.steps.restore import restore_sandbox
from actors.steps.suspend import save_snapshot
from actors.steps.teardown import roll_back, stop_containers
from actors.steps.thaw import thaw
from actors.steps.verify import verify_containers
from actors.steps.watch import watch_sandbox
from statemachine import commands as c
from statemachine.events import BackoffElapsed, SandboxFate
from statemachine.problem import Problem, ProblemError
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.assignment import WorkerAssignment
    from actors.steps.stage import Stage
    from statemachine.actor import Actor
    from statemachine.events import Event


@attrs.frozen
class Steps:
    """Performs the commands of one actor on its stage."""

    stage: Stage

    async def perform(self, command: c.Command, actor: Actor) -> Event:  # noqa: PLR0911 - a row of the table each
        """Run the step that the command names.

        Args:
            command: what is to be done.
            actor: what the machine remembers as it is given.

        Raises:
            ProblemError: the step failed.
        """
        match command:
            case c.RecordAssignment():
                return await record_assignment(self.stage)
            case c.CreateSandbox():
                return await create_sandbox(self.stage)
            case c.RestoreSandbox():
                return await restore_sandbox(self.stage, command)
            case c.VerifyContainers():
                return await verify_containers(self.stage)
            case c.SaveSnapshot():
                return await save_snapshot(self.stage, actor)
            case c.ReleaseSandbox():
                return await release_sandbox(self.stage, actor.last_good)
            case c.Thaw():
                return await thaw(self.stage)
            case c.RollBack():
                return await roll_back(self.stage, actor.origin)
            case c.StopContainers():
                return await stop_containers(self.stage, command)
            case c.StartBackoff(delay_s=delay_s):
                await anyio.sleep(delay_s)
                return BackoffElapsed()
            case _:
                raise ProblemError(_not_built(command))

    async def watch(self, feed: Callable[[Event], Awaitable[None]]) -> None:
        """Feed the ends of the live sandbox and its containers."""
        await watch_sandbox(self.stage, feed)

    async def adopt(self, assignment: WorkerAssignment) -> None:
        """Go on with this assignment, written durably.

        Raises:
            ProblemError: StateUnwritable; the old one stands.
        """
        await write_assignment(self.stage.ports.files, self.stage.directory, assignment)
        self.stage.assignment = assignment

    async def sandbox_fate(self) -> SandboxFate:
        """Whether the live sandbox's process lives."""
        if self.stage.sandbox is None:
            return SandboxFate.DEAD
        alive = await self.stage.ports.processes.is_alive(self.stage.sandbox.process.identity)
        return SandboxFate.ALIVE if alive else SandboxFate.DEAD


def _not_built(command: c.Command) -> Problem:
    """Admission refuses what leads here (`actors.not_built`); a way around it must still end as a reason."""
    return Problem(
        step=c.STEP_OF_COMMAND[type(command)],
        reason=Reason.NOT_SUPPORTED,
        subject=type(command).__name__,
        message=f"this version does not perform {type(command).__name__}",
    )
