"""watch: beside a live sandbox, its end and the end of each container are seen, confirmed and fed to the machine.

A container's file server (gofer) ends with it; runsc then tells the exit code. The death of the sandbox ends every
gofer too, so a container's exit counts only when the sandbox can still answer for it. Beside it goes, too, what the
start has replaced in the durable volumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from actors.steps.volumes import discard_replaced
from statemachine.events import ContainerExited, Event, SandboxDied
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.ports import Exit
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage

ASK_S: Final = 15.0
"""Seconds that one question for an exit code may take; it is not answered while the sandbox is frozen."""
TRIES_MAX: Final = 60
"""Questions before an exit counts with an unknown code: 15 minutes of a frozen sandbox."""
FAILURES_MAX: Final = 10
"""Questions that may fail (no process to be had, a runsc that somebody killed): that says nothing of the container."""
ASK_AGAIN_S: Final = 0.2
CODE_UNKNOWN: Final = 255


async def watch_sandbox(stage: Stage, feed: Callable[[Event], Awaitable[None]]) -> None:
    """Watch until the sandbox has ended or this is cancelled."""
    sandbox = stage.live_sandbox(Step.SUPERVISE)
    async with anyio.create_task_group() as beside:  # of its own: removing cannot be cut off, and no death waits for it
        beside.start_soon(discard_replaced, stage)
        async with anyio.create_task_group() as group:
            stage.told = {name: anyio.Event() for name in sandbox.containers}
            for name in sandbox.containers:
                group.start_soon(_watch_container, stage, sandbox, name, feed)
            exit_ = await sandbox.died()
            group.cancel_scope.cancel()
        await feed(SandboxDied(problem=_death(stage, exit_)))
        beside.cancel_scope.cancel()


async def _watch_container(stage: Stage, sandbox: Sandbox, name: str, feed: Callable[[Event], Awaitable[None]]) -> None:
    told = stage.told[name]
    try:
        await sandbox.ended(name)
        code = await _exit_code(sandbox, name)
        if name not in stage.exited:
            await feed(ContainerExited(container=name, exit_code=code))
    finally:
        told.set()


async def _exit_code(sandbox: Sandbox, name: str) -> int:
    """The code; CODE_UNKNOWN when a sandbox that lives cannot tell. When it is dead, its death ends this."""
    failures = 0
    for _ in range(TRIES_MAX):
        try:
            return await sandbox.exit_code(name, deadline_s=ASK_S)
        except ProblemError as error:
            if error.problem.reason is not Reason.STEP_DEADLINE_EXCEEDED:
                failures += 1
                if failures == FAILURES_MAX:
                    break
                await anyio.sleep(ASK_AGAIN_S)
    return CODE_UNKNOWN


def _death(stage: Stage, exit_: Exit) -> Problem:
    match exit_.code:
        case None:
            how = "its status was lost"
        case code if code < 0:
            how = f"killed by signal {-code}"
        case code:
            how = f"exit code {code}"
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.SANDBOX_DIED,
        subject=stage.assignment.uid,
        message=f"the sandbox of actor {stage.assignment.uid} ended by itself: {how}",
    )
