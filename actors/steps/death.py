"""Why a sandbox died, as far as it can be told: how its process ended, what it wrote last, what the kernel counted."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import anyio

from actors.steps.leaf import oom_kills
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.ports import Exit
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage

ASK_S: Final = 5.0
"""How long may be looked for why; it takes a few ms."""
_SIGNALLED: Final = 128


async def death_of(stage: Stage, sandbox: Sandbox, exit_: Exit) -> Problem:
    """SandboxDied, of a sandbox that nobody has ended. To be asked before it is torn down: its cgroup goes with it."""
    killed: int | None = None
    said = ""
    with anyio.move_on_after(ASK_S):  # that it is dead must not wait for a disk that hangs
        killed = await oom_kills(stage)
        said = await sandbox.last_log()
    how = how_it_ended(exit_, killed)
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.SANDBOX_DIED,
        subject=stage.assignment.uid,
        message=f"the sandbox of actor {stage.assignment.uid} ended by itself: {how}",
        detail=said,
    )


def how_it_ended(exit_: Exit, killed: int | None) -> str:
    """In words.

    Args:
        exit_: the status of the sandbox's process, which is its root container's where that one has ended.
        killed: how many processes of the activation the kernel ended for want of memory; None when nobody counts.
    """
    code = exit_.code
    if code is None:
        return f"its status was lost{_beside(killed)}"
    is_kill = code in {-signal.SIGKILL, _SIGNALLED + signal.SIGKILL}
    status = f"killed by signal {-code}{_named(-code)}" if code < 0 else f"exit code {code}{_named(code - _SIGNALLED)}"
    if not is_kill:
        return f"{status}{_beside(killed)}"
    match killed:
        case None:
            return f"{status}; whether by the kernel for its memory is unknown"
        case 0:
            return f"{status}, not by the kernel for its memory (oom_kill 0)"
        case _:
            return f"killed by the kernel for its memory (oom_kill {killed}): {status}"


def _beside(killed: int | None) -> str:
    return f"; the kernel killed processes of it for its memory (oom_kill {killed})" if killed else ""


def _named(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""
