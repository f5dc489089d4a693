"""pause, resume, checkpoint, exec: what is done with a living sandbox. Texts measured on runsc 20240729."""

from __future__ import annotations

import posixpath
from typing import Final

from .command import CREATED, DONE, PAUSED, RUNNING, Command
from .image import CHECKPOINT, FLATE, NONE, PAGES, PAGES_META
from .machine import Answer, Completion, RunscError, Sleep, Steps
from .saving import INSIDE
from .settings import Flavour
from .words import VERBS, UsageError

_FILE_MODE: Final = 0o644
_KINDS: Final = {CHECKPOINT: "state", PAGES_META: "pages metadata", PAGES: "pages"}
_WHAT_A_COMMAND_NEEDS: Final = 2
_ELF: Final = b"\x7fELF"
_PANIC: Final = b"panic: invalid state transition: created => paused\n\ngoroutine 1 [running]:\n"


def pause(command: Command) -> Steps[Completion]:
    """Freeze the whole sandbox. It is written down for the container that was named only, and after it was done."""
    found = yield from command.load(command.words.arguments[0])
    yield command.lock(found)
    if found.status == CREATED and command.is_r24:
        return Completion(code=2, stderr=_PANIC)
    command.require(found, "pause failed: cannot pause", RUNNING)
    doing = f'pausing container "{found.id.container}"'
    yield from command.ask(found, "Pause", f"pause failed: {doing}: {doing}")
    found.status = PAUSED
    command.save(found)
    return DONE


def resume(command: Command) -> Steps[Completion]:
    """Undo one pause, of a container that is written down as paused."""
    found = yield from command.load(command.words.arguments[0])
    yield command.lock(found)
    command.require(found, "resume failed: cannot resume", PAUSED)
    doing = f'resuming container "{found.id.container}"'
    yield from command.ask(found, "Resume", f"resume failed: {doing}: {doing}")
    found.status = RUNNING
    command.save(found)
    return DONE


def checkpoint(command: Command) -> Steps[Completion]:
    """Save the whole sandbox, whichever container is named. No file is synced."""
    options = command.words.options
    directory = options.get("image-path")
    if not directory:
        raise RunscError("image-path flag must be provided")
    found = yield from command.load(command.words.arguments[0])
    try:
        command.machine.make_directories(directory)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RunscError(f"making directories at path provided: mkdir {_blocked(command, directory)}: {why}") from None
    command.require(found, "checkpoint failed: cannot checkpoint", CREATED, RUNNING, PAUSED)
    # Measured: a command that is killed 30 ms after its start has not asked, and made no file.
    yield Sleep(command.settings.latencies.save_s * (1 - INSIDE))
    default = FLATE if command.settings.flavour is Flavour.R24 else NONE
    compression = options.get("compression", default)
    for name in (CHECKPOINT,) if compression == FLATE else (CHECKPOINT, PAGES_META, PAGES):
        _create_file(command, f"{directory}/{name}", _KINDS[name])
    yield from command.ask(
        found,
        "Checkpoint",
        f'checkpoint failed: checkpointing container "{found.id.container}"',
        directory=directory,
        compression=compression,
        leave_running=command.words.has("leave-running"),
        cuda_checkpoint=options.get("cuda-checkpoint-path", ""),
    )
    return DONE


def _create_file(command: Command, path: str, kind: str) -> None:
    try:
        command.machine.create(path, _FILE_MODE)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RunscError(f'checkpoint failed: creating checkpoint {kind} file "{path}": open {path}: {why}') from None


def _blocked(command: Command, path: str) -> str:
    """Return the parent that is no directory."""
    while path != "/" and not command.machine.holds_file(path):
        path = posixpath.dirname(path)
    return path


def execute(command: Command) -> Steps[Completion]:
    """Run a command inside a container and end with its code; the output is the caller's."""
    if len(command.words.arguments) < _WHAT_A_COMMAND_NEEDS:
        missing = "parsing process spec: both a container-id and command are required"
        raise UsageError(VERBS["exec"].usage, 128, logged=(missing,))
    container_id, *argv = command.words.arguments
    found = yield from command.load(container_id, doing="loading sandbox")
    failing = "executing processes for container"
    command.require(found, f"{failing}: cannot execute in", CREATED, RUNNING)
    user = command.words.options.get("user", "0").partition(":")[0]
    is_confined = "exec-fd" in command.words.options
    if is_confined and not command.invocation.stdin.startswith(_ELF):
        raise RunscError(f"{failing}: exec format error")
    (pid,) = yield from command.ask_with(
        found,
        "ExecuteAsync",
        f'{failing}: executing command "{" ".join(argv)}" in sandbox',
        command.stdio,
        argv=argv,
        user=int(user),
        is_confined=is_confined,
    )
    for option in ("pid-file", "internal-pid-file"):
        if option in command.words.options:
            command.machine.replace(command.words.options[option], str(pid).encode())
    if command.words.has("detach"):
        return DONE
    answer: Answer = yield command.question(found, "WaitPID", pid=pid)
    if answer.result is None:
        how = f'waiting on PID {pid} in sandbox "{found.id.sandbox}"'
        raise RunscError(f'waiting on pid {pid}: {how}: urpc method "containerManager.WaitPID" failed: EOF')
    return Completion(code=answer.result[0])
