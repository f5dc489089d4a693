"""kill, wait, delete: the ends of containers. Texts and limits measured on runsc 20240729."""

from __future__ import annotations

import math
from typing import Final

from .command import CREATED, DONE, RUNNING, STOPPED, Command, says
from .machine import Answer, Completion, RunscError, Sleep, Steps
from .shell import NotUnderstoodError, signal_number
from .state_files import State, socket_path

_GOFER_LIMIT_S: Final = 5.0
_SANDBOX_LIMIT_S: Final = 120.0
_POLLS_MAX: Final = 1_000_000


def kill(command: Command) -> Steps[Completion]:
    """Send a signal to a container's first process, to one process, or to all. Refused in created and in paused."""
    container_id, *rest = command.words.arguments
    name = rest[0] if rest else "TERM"
    found = yield from command.load(container_id)
    try:
        number = signal_number(name)
    except NotUnderstoodError:
        raise RunscError(f'unknown signal "{name}"') from None
    pid = int(command.words.options.get("pid", "0"))
    is_all = command.words.has("all")
    container = found.id.container
    if found.status == STOPPED and not command.is_there(found.pid):
        raise RunscError("sandbox is not running")
    if not is_all:
        command.require(found, "cannot signal", RUNNING, STOPPED)
    failing = f'signaling container "{container}"'
    if pid:
        failing = f"failed to signal pid {pid}: {failing} PID {pid}"
    answer: Answer = yield command.question(found, "Signal", signal=number, pid=pid, all=is_all)
    if answer.error is not None:
        raise RunscError(f'{failing}: signaling process in container "{container}" PID {pid}: {answer.error}')
    if answer.refused or answer.eof:
        raise RunscError(f"{failing}: connecting to control server at PID {found.pid}: connection refused")
    return DONE


def wait(command: Command) -> Steps[Completion]:
    """Wait for a container's end; its status comes as JSON, a signal as 128 plus its number, any number of times."""
    found = yield from command.load(command.words.arguments[0])
    container = found.id.container
    failing = f'waiting on container "{container}"'
    if found.id.is_root and not command.is_there(found.pid):
        raise RunscError(f"{failing}: sandbox no longer running and its exit status is unavailable")
    try:
        status = yield from command.ask(found, "Wait", failing)
    except RunscError as error:
        # The root's status is the sandbox's own: when that died meanwhile, only its parent knows it.
        if found.id.is_root and ("EOF" in error.text or "connecting to control server" in error.text):
            yield from _until_gone(command, found.pid, math.inf)
            raise RunscError(f"{failing}: sandbox no longer running and its exit status is unavailable") from None
        raise
    return says({"id": container, "exitStatus": status[0]})


def delete(command: Command) -> Steps[Completion]:
    """Remove containers, one after the other. With -force a missing id ends the command well, and skips the rest."""
    is_forced = command.words.has("force")
    for container_id in command.words.arguments:
        try:
            found = yield from command.load(container_id, doing=f'loading container "{container_id}"')
        except RunscError as error:
            if is_forced and "file does not exist" in error.text:
                return DONE
            raise
        if not is_forced and found.status not in {CREATED, STOPPED}:
            raise RunscError("cannot delete container that is not stopped without --force flag")
        yield from destroy(command, found, is_forced=is_forced)
    return DONE


def destroy(command: Command, found: State, *, is_forced: bool) -> Steps[None]:
    """Stop a container and forget it.

    With force it is forgotten even when it did not stop.

    Raises:
        RunscError: it did not stop in time. R24 counts a zombie as not stopped: somebody has to reap it.
    """
    yield command.lock(found)
    try:
        yield from _stop(command, found)
    except RunscError as error:
        if is_forced:
            _forget(command, found)
        raise RunscError(f"destroying container: stopping container: {error.text}") from None
    _forget(command, found)


def _forget(command: Command, found: State) -> None:
    command.forget(found.id)
    if found.filestore:
        command.machine.remove(found.filestore)
    if found.id.is_root:
        command.machine.remove(socket_path(command.root, found.id.sandbox))


def _stop(command: Command, found: State) -> Steps[None]:
    container = found.id.container
    if found.id.is_root:
        if command.is_there(found.pid):
            command.machine.kill(found.pid)
            if not (yield from _until_gone(command, found.pid, _SANDBOX_LIMIT_S)):
                sandbox = f'waiting sandbox "{found.id.sandbox}" stop'
                raise RunscError(f'destroying container "{container}": {sandbox}: context deadline exceeded')
    elif command.is_there(found.pid):
        failing = f'destroying container "{container}"'
        yield from command.ask(found, "DestroySubcontainer", f"{failing}: {failing}")
    if found.gofer:
        command.machine.kill(found.gofer)
        if not (yield from _until_gone(command, found.gofer, _GOFER_LIMIT_S)):
            raise RunscError("context deadline exceeded")


def _until_gone(command: Command, pid: int, limit_s: float) -> Steps[bool]:
    """Look whether a process is gone, at once and then every 100 ms; whether it was in time."""
    waited_s = 0.0
    for _ in range(_POLLS_MAX):
        if not command.is_there(pid):
            return True
        if waited_s >= limit_s:
            return False
        yield Sleep(command.settings.latencies.delete_poll_s)
        waited_s += command.settings.latencies.delete_poll_s
    return False
