"""Commands that a person executes inside a container, beside the steps; not one of them.

The client runs `runsc exec` itself, with streams of its own; here is what it needs for that, and what must hold while
it does: no suspend (see `refusals.require_no_exec`), and afterwards nothing left of the command. Its streams are fifos
in the activation's directory with names of ours, by which the Processes port sees who still has one open.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import CLIENT_STREAM
from actors.runsc import argv
from actors.runsc.errors import Call
from actors.runsc.version import ENVIRONMENT
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .refusals import exited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from actors.runsc.sandbox import Sandbox

    from .stage import Stage

EXECUTIONS_MAX: Final = 16
"""Of one actor, at a time."""
FINISH_S: Final = 30.0
"""How long the look for what is left of a command may take."""


@attrs.frozen(kw_only=True)
class Execution:
    """What a client needs to execute a command.

    Attributes:
        argv: the whole command.
        env: its environment.
        stdin: the file that is its stdin; None: the client's own.
        is_confined: whether at a terminal it goes by way of `confine_at_terminal_elf`, at `EXEC_FD_AT_TERMINAL`.
        streams: where its streams are made: a path to which their names are added.
        log: what runsc says goes here.
        kill: the command that sends a signal, but for its last three words: `--pid=PID`, the container, the signal.
        container: runsc's id of the container.
        pid_file: gets the pid inside, by which it is signalled.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: Path | None
    is_confined: bool
    streams: Path
    log: Path
    kill: tuple[str, ...]
    container: str
    pid_file: Path


@asynccontextmanager
async def executing(
    stage: Stage,
    name: str,
    command: Sequence[str],
    at_last: Callable[[float], AbstractContextManager[object]],
    *,
    term: str | None = None,
) -> AsyncIterator[Execution]:
    """While the body runs a client may execute a command; what is left of it then is killed.

    Args:
        stage: the actor's.
        name: of the container.
        command: what is executed in it.
        at_last: gives a body that nobody cancels up after so long, or sooner when the worker has not so long left.
        term: what kind of terminal it is executed at; None: at none.

    Raises:
        ProblemError: SandboxDied, InvalidRequest (no such container), ContainerExited, OperationInProgress (too many).
    """
    sandbox = stage.live_sandbox(Step.SUPERVISE)
    _require_room(stage, sandbox, name)
    execution = _execution(stage, sandbox, name, command, term)
    # Counted before anything is awaited: a suspend that begins from here on finds it.
    stage.executions += 1
    try:
        yield execution
    finally:
        try:
            with at_last(FINISH_S):
                await _finish(stage, sandbox, name, execution)
        finally:
            stage.executions -= 1


def _require_room(stage: Stage, sandbox: Sandbox, name: str) -> None:
    uid = stage.assignment.uid
    if name not in sandbox.containers:
        names = ", ".join(sandbox.containers)
        message = f"actor {uid} has no container {name!r}; it has {names}"
        # `exec UID sh -c 'exit 3'` takes the script for a container's name.
        hint = f"`greenroom exec {uid} -c NAME -- COMMAND…`, and NAME is one of {names}; `--` before the command."
        raise ProblemError(attrs.evolve(_problem(Reason.INVALID_REQUEST, name, message), hint=hint))
    if name in stage.exited or (name in stage.told and stage.told[name].is_set()):
        raise ProblemError(attrs.evolve(exited(name, "nothing can be executed in it"), step=Step.SUPERVISE))
    if stage.executions >= EXECUTIONS_MAX:
        message = f"{EXECUTIONS_MAX} commands are being executed inside actor {uid} already"
        raise ProblemError(_problem(Reason.OPERATION_IN_PROGRESS, uid, message))


def _execution(stage: Stage, sandbox: Sandbox, name: str, command: Sequence[str], term: str | None) -> Execution:
    runsc, target = sandbox.runsc, sandbox.targets[name]
    streams = runsc.activation / f"{CLIENT_STREAM}{stage.ports.wall.fresh_id()}"
    log, pid_file = streams.with_suffix(".log"), streams.with_suffix(".pid")
    runs = (str(runsc.path), *runsc.flags.as_argv(root=runsc.root, log=log))
    shape = stage.shapes.get(name)
    user = None if shape is None else f"{shape.user.uid}:{shape.user.gid}"
    if runsc.confine is None:
        words = argv.execute(target.id, command, pid_file=pid_file, user=user, term=term)
    else:
        words = argv.execute_confined(target.id, command, path=target.path, pid_file=pid_file, user=user, term=term)
    return Execution(
        argv=(*runs, *words),
        env=ENVIRONMENT,
        stdin=runsc.confine if term is None else None,
        is_confined=runsc.confine is not None,
        streams=streams,
        log=log,
        kill=(*runs, "kill"),
        container=target.id,
        pid_file=pid_file,
    )


async def _finish(stage: Stage, sandbox: Sandbox, name: str, execution: Execution) -> None:
    """Kill what is left of the command, if the sandbox is still the live one, and remove its files."""
    if stage.sandbox is sandbox:
        call = Call(step=Step.SUPERVISE, verb="exec", subject=name, secrets=sandbox.targets[name].secrets)
        with suppress(ProblemError, OSError):
            log, pid_file = await stage.ports.files.lstat_each((execution.log, execution.pid_file))
            if log is not None and pid_file is None:
                await sandbox.doubt(name)  # it could not be started
            elif pid_file is not None:
                await sandbox.runsc.end_exec(call, sandbox.targets[name], execution.pid_file)
    names = (".log", ".pid", ".stdin", ".stdout", ".stderr")
    for path in (execution.streams.with_suffix(suffix) for suffix in names):
        with suppress(OSError):
            await stage.ports.files.remove_file(path)


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=subject, message=message)
