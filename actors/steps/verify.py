"""verify: the actor is what it should be: alive, and serving where a wakeup probe says what that means.

Needs the sandbox that create or restore has brought up, and its watch. In each container that was restored postResume
runs before the probe. At the end, what restore has put back into the volumes counts. Makes nothing. Fails with
SandboxDied, HookFailed, StateUnwritable, or with RestoredNotServing when a probe did not answer in its time; the
snapshot is still good then. A container that has ended is told of by the watch before this ends, so that the machine
judges it on the way up, where a snapshot is gone back to. Only `exec` probes are made here; the others are refused at
admission.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from actors.assignment import ExecAction
from actors.concurrency import together
from actors.runsc.answers import Status
from actors.steps.hooks import after_restore
from actors.steps.volumes import confirm_volumes
from statemachine.events import ContainersVerified
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.assignment import Container, WakeupProbe
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage

TRY_S: Final = 5.0
"""Seconds that one try of a probe may take."""
PAUSE_BETWEEN_TRIES_S: Final = 0.1
TOLD_S: Final = 5.0
"""Seconds that the news of a container's end is waited for; it takes runsc some 20 ms to tell."""


async def verify_containers(stage: Stage) -> ContainersVerified:
    """Perform VerifyContainers."""
    sandbox = stage.live_sandbox(Step.VERIFY)
    containers = [each for each in stage.assignment.containers if each.name not in stage.exited]
    await together(*(partial(_verify_one, stage, sandbox, each) for each in containers))
    await confirm_volumes(stage, Step.VERIFY)
    return ContainersVerified()


async def _verify_one(stage: Stage, sandbox: Sandbox, container: Container) -> None:
    state = await sandbox.inspect(container.name)
    if state.status is Status.STOPPED:
        # What an exit means is the machine's to say: the watcher feeds it, and before all is called well. It only
        # cannot be probed any more.
        if container.name in stage.told:
            with anyio.move_on_after(TOLD_S):
                await stage.told[container.name].wait()
        if container.wakeup_probe is not None:
            raise ProblemError(_not_serving(container.name, "it has exited before its probe answered"))
        return
    if state.status is not Status.RUNNING:
        raise ProblemError(_not_serving(container.name, f"runsc says that it is {state.status}"))
    await after_restore(stage, sandbox, container.name)
    if container.wakeup_probe is not None:
        user = stage.shapes[container.name].user
        await _probe(sandbox, container.name, container.wakeup_probe, f"{user.uid}:{user.gid}")


async def _probe(sandbox: Sandbox, name: str, probe: WakeupProbe, user: str) -> None:
    if not isinstance(probe.action, ExecAction):
        raise ProblemError(
            Problem(
                step=Step.VERIFY,
                reason=Reason.NOT_SUPPORTED,
                subject=name,
                message=f"a probe of this kind is not performed: {type(probe.action).__name__}",
            )
        )
    last = "it was never tried"
    tries = 0
    with anyio.move_on_after(probe.timeout_s):
        while True:
            tries += 1
            answer = await _try(sandbox, name, probe.action, user)
            if answer is None:
                return
            last = answer
            await anyio.sleep(PAUSE_BETWEEN_TRIES_S)
    raise ProblemError(
        _not_serving(name, f"its probe did not succeed within {probe.timeout_s:g} s ({tries} tries; last: {last})")
    )


async def _try(sandbox: Sandbox, name: str, action: ExecAction, user: str) -> str | None:
    """One try, as the container's own user; None when it succeeded, else what was wrong."""
    try:
        finished = await sandbox.execute(name, action.argv, deadline_s=TRY_S, user=user)
    except ProblemError as error:
        return error.problem.message
    return None if finished.exit.code == 0 else f"exit code {finished.exit.code}"


def _not_serving(name: str, what: str) -> Problem:
    return Problem(
        step=Step.VERIFY,
        reason=Reason.RESTORED_NOT_SERVING,
        subject=name,
        message=f"container {name} does not serve: {what}",
    )
