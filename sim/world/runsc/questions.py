"""What can be asked of a sandbox's kernel, by the names of runsc's control socket.

Answers and their texts: measured on runsc 20240729.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from . import restoring, saving
from .contained import CREATED, LIMBO, RUNNING, STOPPED, Contained
from .machine import CommandFiles, Handle
from .programs import Program, exits_with
from .refusals import PanicError, SandboxError
from .seccomp import refused_kinds
from .sentry import Question, Sentry, TryAgain
from .shell import NoSuchCommandError

if TYPE_CHECKING:
    from .settings import RunscSettings

Argument = Mapping[str, Any]
_CANNOT_EXECUTE: Final = 127
_NODES: Final = frozenset({"b", "c"})
"""What Greenroom's program refuses itself."""


def boot(settings: RunscSettings, files: CommandFiles, facts: Argument, stdio: Sequence[Handle]) -> Sentry:
    """Boot the sandbox that `create` of a root describes, with that container created in it and its stdio taken."""
    sentry = Sentry(settings=settings, files=files, sandbox_id=facts["id"], flags=facts["flags"], questions=QUESTIONS)
    root = sentry.add(facts["id"], facts["spec"], is_root=True)
    root.gofer, root.stdio = facts["gofer"], (stdio[0], stdio[1])
    return sentry


def _started(sentry: Sentry, argument: Argument) -> Contained:
    found = sentry.containers.get(argument["id"])
    if found is None or found.state in {CREATED, LIMBO}:
        raise SandboxError(f'container "{argument["id"]}" not started')
    return found


def runtime_state(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], _now_s: float) -> Any:
    """Whether a container is creating, running or stopped; one in limbo is running for all that runsc knows."""
    found = sentry.containers.get(argument["id"])
    if found is None or found.state == STOPPED:
        return "stopped"
    return "creating" if found.state == CREATED else "running"


def start_root(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], now_s: float) -> Any:
    """Start the root's program."""
    root = sentry.containers[argument["id"]]
    try:
        _start(sentry, root, now_s)
    except NoSuchCommandError as error:
        raise SandboxError(_creating_process(error)) from None
    return True


def create_subcontainer(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], _now_s: float) -> Any:
    """Take in a container that is to start."""
    sentry.add(argument["id"], argument["spec"])
    return True


def start_subcontainer(sentry: Sentry, argument: Argument, stdio: Sequence[Handle], now_s: float) -> Any:
    """Start a container: before the root has started, that kills the whole sandbox."""
    if sentry.containers[sentry.sandbox_id].state != RUNNING:
        raise PanicError
    container = sentry.containers[argument["id"]]
    container.stdio = stdio[0], stdio[1]
    try:
        _start(sentry, container, now_s)
    except NoSuchCommandError as error:
        raise SandboxError(_creating_process(error)) from None
    container.gofer = argument["gofer"]
    return True


def _start(sentry: Sentry, container: Contained, now_s: float) -> None:
    process = container.spec.get("process") or {}
    user = int((process.get("user") or {}).get("uid", 0))
    program = sentry.program(container, process.get("args") or (), user)
    refused = refused_kinds(container.spec, sentry.flags)
    sentry.start_process(container, program, now_s, container.stdio, refused=refused)
    container.state = RUNNING


def _creating_process(error: NoSuchCommandError) -> str:
    text = str(error)
    return f"creating process: {text}" if text.startswith("failed to load") else text


def destroy_subcontainer(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], now_s: float) -> TryAgain:
    """Kill and forget a container; one that runs dies only when it is not frozen."""
    container = sentry.containers.get(argument["id"])
    if container is None:
        return lambda: True
    if container.state == RUNNING:
        _deliver(sentry, container, container.init_pid, signal.SIGKILL, now_s)

    def gone() -> bool | None:
        if container.state == RUNNING:
            return None
        if container.leaks_gofer:
            # What holds its file server holds its file system too, and an image would need both.
            sentry.orphans.append(container.name)
        sentry.containers.pop(container.id, None)
        return True

    return gone


def pause(sentry: Sentry, _argument: Argument, _stdio: Sequence[Handle], now_s: float) -> TryAgain:
    """Freeze every process; pauses nest."""
    return _once_saved(sentry, sentry.freeze, now_s)


def resume(sentry: Sentry, _argument: Argument, _stdio: Sequence[Handle], now_s: float) -> TryAgain:
    """Undo one pause."""
    return _once_saved(sentry, sentry.thaw, now_s)


def _once_saved(sentry: Sentry, act: Callable[[float], None], now_s: float) -> TryAgain:
    """Do something, after the save that is under way; also when whoever asked is gone by then."""
    done: list[float] = []

    def do(at_s: float) -> None:
        act(at_s)
        done.append(at_s)

    if sentry.saves:
        sentry.once_saved.append(do)
    else:
        do(now_s)
    return lambda: True if done else None


def send(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], now_s: float) -> Any:
    """Signal a container's first process, one of its processes, or all of them."""
    container = sentry.containers.get(argument["id"])
    pid, number = argument["pid"], argument["signal"]
    if argument["all"]:
        for each in tuple(container.processes) if container is not None else ():
            _deliver(sentry, sentry.containers[argument["id"]], each, number, now_s)
        return True
    if container is None or container.state in {CREATED, LIMBO}:
        raise SandboxError(f"no such process with PID {pid}")
    if container.state == STOPPED:
        raise SandboxError("no such process" if not pid else f"no such process with PID {pid}")
    if pid and pid not in container.processes:
        raise SandboxError(f"no such process with PID {pid}")
    _deliver(sentry, container, pid or container.init_pid, number, now_s)
    return True


def _deliver(sentry: Sentry, container: Contained, pid: int, number: int, now_s: float) -> None:
    if sentry.pauses:
        container.signals.append((pid, number))
    else:
        container.signal(pid, number, now_s)


def wait(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], _now_s: float) -> TryAgain:
    """Wait for a container's end; any number of times. What was never restored never ends."""
    container = sentry.containers.get(argument["id"])
    was_left_out = sentry.restore is not None and sentry.restore.is_complete
    if (
        container is None
        or (container.state == LIMBO and was_left_out)
        or (container.state == CREATED and not container.is_root)
    ):
        raise SandboxError(f'container "{argument["id"]}" not started')
    return lambda: [container.status] if container.state == STOPPED else None


def execute(sentry: Sentry, argument: Argument, stdio: Sequence[Handle], now_s: float) -> Any:
    """Start a command in a container; in a frozen sandbox it is there and stands still like everything else.

    A command that cannot be started leaks the container's file server, which then outlives the container. Measured: the
    container's filter does not count for it.
    """
    container = _started(sentry, argument)
    if container.state == STOPPED:
        raise SandboxError(f'container "{container.id}" not started')
    if argument.get("is_confined"):
        program, refused = _confined(sentry, container, argument), _NODES
    else:
        program, refused = _executed(sentry, container, argument), frozenset[str]()
    output = stdio[0], stdio[1]
    return [sentry.start_process(container, program, now_s, output, is_foreign=True, refused=refused).pid]


def _executed(sentry: Sentry, container: Contained, argument: Argument) -> Program:
    try:
        return sentry.program(container, argument["argv"], argument["user"])
    except NoSuchCommandError as error:
        container.leaks_gofer = True
        raise SandboxError(str(error)) from None


def _confined(sentry: Sentry, container: Contained, argument: Argument) -> Program:
    """What Greenroom's own program becomes, handed over as a descriptor: the first candidate that is there."""
    words = argument["argv"][1:]
    at = words.index("")
    candidates, argv = words[:at], words[at + 1 :]
    if tuple(argv) in sentry.settings.programs:
        candidates = argv[:1]
    for candidate in candidates:
        try:
            return sentry.program(container, [candidate, *argv[1:]], argument["user"])
        except NoSuchCommandError:
            continue
    return exits_with(_CANNOT_EXECUTE)


def wait_pid(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], _now_s: float) -> TryAgain:
    """Wait for the end of a command in a container."""
    container = sentry.containers[argument["id"]]
    pid = argument["pid"]
    return lambda: [container.statuses[pid]] if pid in container.statuses else None


def processes(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], _now_s: float) -> Any:
    """List the processes of a container; also of one that has ended, which has none."""
    container = sentry.containers.get(argument["id"])
    found = container.processes.values() if container is not None and container.state == RUNNING else ()
    return [[each.pid, each.parent, each.run.program.name] for each in found]


def event(sentry: Sentry, argument: Argument, _stdio: Sequence[Handle], _now_s: float) -> Any:
    """Sample a container's statistics; there are none of one that has ended."""
    container = sentry.containers.get(argument["id"])
    if container is None or container.state == STOPPED:
        raise SandboxError("no such container")
    return {"processes": len(container.processes), "bytes": container.memory_bytes}


QUESTIONS: Final[Mapping[str, Question]] = MappingProxyType(
    {
        "ContainerRuntimeState": runtime_state,
        "StartRoot": start_root,
        "CreateSubcontainer": create_subcontainer,
        "StartSubcontainer": start_subcontainer,
        "DestroySubcontainer": destroy_subcontainer,
        "Pause": pause,
        "Resume": resume,
        "Signal": send,
        "Wait": wait,
        "ExecuteAsync": execute,
        "WaitPID": wait_pid,
        "Processes": processes,
        "Event": event,
        "Checkpoint": saving.checkpoint,
        "Restore": restoring.restore_root,
        "RestoreSubcontainer": restoring.restore_subcontainer,
    }
)
