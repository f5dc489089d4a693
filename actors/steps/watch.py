"""watch: beside a live sandbox, its end and the end of each container are seen, confirmed and fed to the machine.

A container's file server (gofer) ends with it: that is a sign. The proof is runsc's: its exit code, or the state in
which the container is. The death of the sandbox ends every gofer too, so a container's exit counts only when the
sandbox can still answer for it. A container that lives without its gofer (which was killed for its memory, say) is told
and looked at, and counts as exited when it has exited. Beside it goes, too, what the start has replaced in the durable
volumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from actors.steps.death import death_of
from actors.steps.volumes import discard_replaced
from statemachine.events import ContainerExited, Event, SandboxDied
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage

ASK_S: Final = 15.0
"""Seconds that one question for an exit code may take; it is not answered while the sandbox is frozen."""
FAILURES_MAX: Final = 10
"""Questions for the code of a stopped container that may fail (a runsc that somebody killed) before it is unknown."""
ASK_AGAIN_S: Final = 0.2
ASK_AGAIN_MAX_S: Final = 30.0
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
        await feed(SandboxDied(problem=await death_of(stage, sandbox, exit_)))
        beside.cancel_scope.cancel()


async def _watch_container(stage: Stage, sandbox: Sandbox, name: str, feed: Callable[[Event], Awaitable[None]]) -> None:
    told = stage.told[name]
    try:
        await sandbox.ended(name)
        code = await _exit_code(stage, sandbox, name)
        if name not in stage.exited:
            await feed(ContainerExited(container=name, exit_code=code))
    finally:
        told.set()


async def _exit_code(stage: Stage, sandbox: Sandbox, name: str) -> int:
    """The code, once the container has ended; CODE_UNKNOWN when a sandbox that lives cannot tell that of a stopped one.

    When the sandbox is dead, its death ends this.
    """
    failures, pause_s, was_alive = 0, ASK_AGAIN_S, False
    while True:
        is_slow = False
        try:
            return await sandbox.exit_code(name, deadline_s=ASK_S)
        except ProblemError as error:
            is_slow = error.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        lives = await sandbox.lives_on(name)
        if lives and (is_slow or was_alive):  # a look at once may find what is just ending
            await _outlived(stage, sandbox, name)
        elif lives is False and not is_slow:
            failures += 1
            if failures == FAILURES_MAX:
                return CODE_UNKNOWN
        was_alive = lives is True
        if not is_slow:  # one that is slow waits for a thaw, and has taken its time
            await anyio.sleep(pause_s)
        if lives is None:
            pause_s = min(2 * pause_s, ASK_AGAIN_MAX_S)


async def _outlived(stage: Stage, sandbox: Sandbox, name: str) -> None:
    """A container lives without its file server: tell it, and wait until it has stopped."""
    message = f"the file server (gofer) of container {name} has ended, and the container lives on without it"
    await stage.tell(
        Problem(step=Step.SUPERVISE, reason=Reason.FILE_SERVER_LOST, subject=name, message=message),
    )
    await sandbox.doubt(name)
    await sandbox.until_stopped(name)
