"""Which function performs which command. The supervisor's loop knows this class, and nothing of the steps behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.steps.assign import adopt_assignment, record_assignment
from actors.steps.create import create_sandbox
from actors.steps.detect import detect_gpus
from actors.steps.generate import generate_spec
from actors.steps.inject import inject_edits
from actors.steps.partition import partition_gpus
from actors.steps.recover import take_over
from actors.steps.release import release_sandbox
from actors.steps.restore import restore_sandbox
from actors.steps.stage import Stage
from actors.steps.suspend import save_snapshot
from actors.steps.teardown import roll_back, stop_containers
from actors.steps.thaw import thaw
from actors.steps.verify import verify_containers
from actors.steps.watch import watch_sandbox
from statemachine import commands as c
from statemachine.actor import Ending
from statemachine.events import BackoffElapsed, Event, SandboxFate

if TYPE_CHECKING:
    from actors.assignment import WorkerAssignment
    from actors.runsc.reclaiming import Survivor
    from statemachine.actor import Actor, Snapshot

_PLAIN: Final[Mapping[type, Callable[[Stage], Awaitable[Event]]]] = MappingProxyType(
    {
        c.RecordAssignment: record_assignment,
        c.DetectGpus: detect_gpus,
        c.GenerateSpec: generate_spec,
        c.PartitionGpus: partition_gpus,
        c.CreateSandbox: create_sandbox,
        c.VerifyContainers: verify_containers,
        c.Thaw: thaw,
    }
)
"""The steps that need nothing but the stage."""


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
            ValueError: the command starts no step.
        """
        plain = _PLAIN.get(type(command))
        if plain is not None:
            return await plain(self.stage)
        match command:
            case c.InjectEdits():
                return await inject_edits(self.stage, actor.origin, actor.on_difference)
            case c.RestoreSandbox():
                return await restore_sandbox(self.stage, command)
            case c.SaveSnapshot():
                return await save_snapshot(self.stage, actor)
            case c.ReleaseSandbox():
                return await release_sandbox(self.stage, command, actor.last_good)
            case c.RollBack():
                return await roll_back(self.stage, command, _to_go_back_to(actor))
            case c.StopContainers():
                return await stop_containers(self.stage, command)
            case c.StartBackoff(delay_s=delay_s):
                await anyio.sleep(delay_s)
                return BackoffElapsed()
            case _:
                message = f"no step performs {type(command).__name__}"
                raise ValueError(message)

    async def watch(self, feed: Callable[[Event], Awaitable[None]]) -> None:
        """Feed the ends of the live sandbox and its containers."""
        await watch_sandbox(self.stage, feed)

    async def adopt(self, assignment: WorkerAssignment) -> None:
        """Go on with this assignment, written durably.

        Raises:
            ProblemError: StateUnwritable; the old one stands.
        """
        await adopt_assignment(self.stage, assignment)

    async def take_over(self, survivor: Survivor, actor: Actor) -> Actor:
        """Go on with a sandbox that outlived an earlier life of the worker; returns the actor as it is.

        Raises:
            ProblemError: it cannot be gone on with; nothing of it is owned.
        """
        return await take_over(self.stage, survivor, actor)

    def inherit(self, activation: str) -> None:
        """Take an activation of an earlier life of the worker for one's own, to be ended."""
        self.stage.activation = self.stage.state_dir.activation(activation)

    async def sandbox_fate(self) -> SandboxFate:
        """Whether the live sandbox's process lives."""
        if self.stage.sandbox is None:
            return SandboxFate.DEAD
        alive = await self.stage.ports.processes.is_alive(self.stage.sandbox.process.identity)
        return SandboxFate.ALIVE if alive else SandboxFate.DEAD


def _to_go_back_to(actor: Actor) -> Snapshot | None:
    """The snapshot that a rollback looks at: all of it is read, so only where the actor may end there."""
    return actor.origin if actor.ending is Ending.ORIGIN else None
