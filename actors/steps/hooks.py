"""The hooks around a suspend: preSuspend before the freeze, postResume when the actor runs again.

An assignment has one of each, for all of its containers: in every application container that lives, an `exec` runs as
the container's own user, or a signal goes to the first process. All of them at once, each within HOOK_S, and all are
waited for: what was executed has ended before the freeze, or the suspend is refused. A signal is only delivered; nobody
knows when the application has done what it stands for.

preSuspend is how an application lets go of what cannot be saved (a GPU, a connection), so postResume runs after a
restore, before the probe, and also when a suspend came to nothing after preSuspend was run. There it can only be told
that it failed: the actor runs, and nobody asked for its end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors.assignment import ExecAction
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.assignment import SignalAction
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage
    from statemachine.actor import Actor

HOOK_S: Final = 30.0
"""Seconds that a hook may take."""

_log = structlog.get_logger("greenroom.hooks")


@attrs.frozen
class _Hook:
    """A hook of an actor, in a step."""

    word: str
    action: ExecAction | SignalAction
    step: Step


async def before_suspend(stage: Stage, actor: Actor) -> None:
    """Run preSuspend, if there is one.

    Raises:
        ProblemError: HookFailed: the actor must not be suspended; SandboxDied.
    """
    action = stage.assignment.lifecycle.pre_suspend
    if action is None:
        return
    names = [fate.name for fate in actor.containers if not fate.ended and fate.name not in stage.exited]
    sandbox = stage.live_sandbox(Step.SUSPEND)
    # Whoever was told, or may have been, is told when it comes to nothing.
    stage.let_go = tuple(names)
    await stage.mark(Step.SUSPEND, "PreSuspend")
    problems = await _run_in_each(stage, sandbox, names, _Hook("preSuspend", action, Step.SUSPEND))
    if problems:
        raise ProblemError(*problems)


async def after_restore(stage: Stage, sandbox: Sandbox, name: str) -> None:
    """Run postResume, if there is one, in a container that was restored.

    Raises:
        ProblemError: HookFailed, SandboxDied.
    """
    action = stage.assignment.lifecycle.post_resume
    if action is not None and stage.is_restored:
        await _run(stage, sandbox, name, _Hook("postResume", action, Step.VERIFY))


async def after_thaw(stage: Stage) -> None:
    """Run postResume, if there is one, where preSuspend was run for nothing. A failure is told, and no more."""
    names, stage.let_go = stage.let_go, ()
    action = stage.assignment.lifecycle.post_resume
    if action is None or not names or stage.sandbox is None:
        return
    try:
        problems = await _run_in_each(stage, stage.sandbox, names, _Hook("postResume", action, Step.THAW))
    except ProblemError as error:
        problems = list(error.problems)
    for problem in problems:
        _log.warning(
            "hook_failed",
            actor=stage.assignment.uid,
            subject=problem.subject,
            reason=str(problem.reason),
            message=problem.message,
            detail=problem.detail,
        )
        await stage.mark(Step.THAW, f"PostResumeFailed {problem.subject}")


async def _run_in_each(stage: Stage, sandbox: Sandbox, names: Iterable[str], hook: _Hook) -> list[Problem]:
    """Run a hook in all these containers at once, each to its end, and return what failed, in their order."""
    problems: dict[str, Problem] = {}

    async def run(name: str) -> None:
        try:
            await _run(stage, sandbox, name, hook)
        except ProblemError as error:
            problems[name] = error.problem

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(partial(run, name))
    died = [problem for problem in problems.values() if problem.reason is Reason.SANDBOX_DIED]
    if died:
        raise ProblemError(died[0])
    return [problems[name] for name in names if name in problems]


async def _run(stage: Stage, sandbox: Sandbox, name: str, hook: _Hook) -> None:
    try:
        if not isinstance(hook.action, ExecAction):
            await sandbox.signal(name, hook.action.name)
            return
        user = stage.shapes[name].user
        finished = await sandbox.execute(name, hook.action.argv, deadline_s=HOOK_S, user=f"{user.uid}:{user.gid}")
    except ProblemError as error:
        if error.problem.reason is Reason.SANDBOX_DIED:
            raise
        what = error.problem.message
        if error.problem.reason is Reason.STEP_DEADLINE_EXCEEDED:
            what = f"it has not ended within {HOOK_S:g} s and was killed"
        raise ProblemError(_failed(hook, name, what, error.problem.detail)) from error
    if finished.exit.code:
        detail = sandbox.last_words(name, finished)
        raise ProblemError(_failed(hook, name, f"exit code {finished.exit.code}", detail))


def _failed(hook: _Hook, name: str, what: str, detail: str) -> Problem:
    message = f"the {hook.word} hook failed in container {name}: {what}"
    return Problem(step=hook.step, reason=Reason.HOOK_FAILED, subject=name, message=message, detail=detail)
