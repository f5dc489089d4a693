"""A sandbox that outlived the supervisor, owned again: by its record, its processes' identities and runsc's own word.

Whoever reads a record knows nothing yet: a process is only believed when exactly it (pid and start time) lives with
`--root=` of this activation on its command line, and a record only on the boot that it was written on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.concurrency import together
from actors.ports import DeadlineExceededError
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .answers import Status
from .record import ROOT_CONTAINER, SandboxRecord, read_record
from .sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from actors.ports import Child, Files, Processes, ProcessIdentity

    from .answers import ContainerState
    from .driver import Runsc, Target
    from .teardown import Leftover

COMMANDS_S: Final = 2.0
"""Seconds that a command of the life before may go on. One that is cut off leaves what runsc does not know of: a
sandbox that is frozen and said to run; it takes some 20 ms. A save is given up: it goes on inside all the same."""
_KILL_S: Final = 5.0
_LIVES: Final = frozenset({Status.RUNNING, Status.PAUSED})


@attrs.frozen(kw_only=True)
class Survivor:
    """An activation that has outlived its supervisor, as far as its record and its processes tell.

    Attributes:
        record: what is written down of it; on this boot.
        processes: what lives of it, the commands of the life before included.
    """

    record: SandboxRecord
    processes: tuple[ProcessIdentity, ...]


async def survivor_of(files: Files, directory: Path, leftover: Leftover, *, boot_id: str) -> Survivor | None:
    """What is left of an activation, when it may be gone on with; None when its sandbox is dead, or nobody can know.

    Raises:
        ProblemError: NewerFormat, StateCorrupt: its record cannot be read.
    """
    record = await read_record(files, directory)
    is_ours = record is not None and record.activation == leftover.activation and record.boot_id == boot_id
    if record is None or not is_ours or record.sandbox not in leftover.processes:
        return None
    return Survivor(record=record, processes=leftover.processes)


async def reclaim_sandbox(runsc: Runsc, survivor: Survivor, targets: Mapping[str, Target]) -> Reclaimed:
    """Own a survivor's processes again and return its sandbox.

    Args:
        runsc: its driver.
        survivor: the activation.
        targets: by container name, `pause` included: those of its record.

    Raises:
        ProblemError: SandboxDied when it ended meanwhile, or what runsc says when it cannot be asked.
    """
    record = survivor.record
    try:
        process = await _reclaim(runsc.processes, record.sandbox)
    except OSError as error:
        raise ProblemError(_unwatchable(record, error)) from error
    if process is None:
        raise ProblemError(_problem(record, Reason.SANDBOX_DIED, "its sandbox ended while it was looked at"))
    try:
        await _end_commands(runsc.processes, set(survivor.processes) - {record.sandbox, *record.gofers.values()})
        known = {each.id: each for each in await runsc.list_containers(targets[ROOT_CONTAINER])}
        states = {name: known[target.id] for name, target in targets.items() if target.id in known}
        gofers = await _gofers(runsc.processes, record, states)
    except OSError as error:
        process.close()
        raise ProblemError(_unwatchable(record, error)) from error
    except BaseException:
        process.close()
        raise
    sandbox = Sandbox(
        runsc=runsc,
        record=record,
        process=process,
        gofers=gofers,
        targets={name: targets[name] for name in states},
        doubted=set(record.belongings.doubted if record.belongings else ()),
    )
    return Reclaimed(sandbox=sandbox, states=states)


@attrs.frozen(kw_only=True)
class Reclaimed:
    """A sandbox that is owned again.

    Attributes:
        sandbox: the sandbox; its targets are the containers that runsc still has in it.
        states: of those, by name.
    """

    sandbox: Sandbox
    states: Mapping[str, ContainerState]


async def _gofers(
    processes: Processes, record: SandboxRecord, states: Mapping[str, ContainerState]
) -> dict[str, Child]:
    """The file servers of containers that live; one that is gone says that its container has exited meanwhile."""
    gofers: dict[str, Child] = {}
    try:
        for name, state in states.items():
            gofer = await _reclaim(processes, record.gofers.get(name)) if state.status in _LIVES else None
            if gofer is not None:
                gofers[name] = gofer
    except BaseException:
        for each in gofers.values():
            each.close()
        raise
    return gofers


async def _reclaim(processes: Processes, identity: ProcessIdentity | None) -> Child | None:
    if identity is None:
        return None
    try:
        return await processes.reclaim(identity)
    except ProcessLookupError:
        return None


async def _end_commands(processes: Processes, commands: Collection[ProcessIdentity]) -> None:
    """Let the commands of the life before end, and end those that do not.

    Raises:
        OSError: one cannot be ended.
    """
    await together(*(partial(_end_command, processes, each) for each in commands))


async def _end_command(processes: Processes, identity: ProcessIdentity) -> None:
    command = await _reclaim(processes, identity)
    if command is None:
        return
    try:
        with anyio.move_on_after(COMMANDS_S):
            await command.wait()
            return
    finally:
        command.close()
    try:
        await processes.kill_and_wait(identity, deadline_s=_KILL_S)
    except DeadlineExceededError as error:
        raise OSError(f"process {identity.pid} does not end") from error


def _unwatchable(record: SandboxRecord, error: OSError) -> Problem:
    what = f"its processes cannot be watched: {error.strerror or error}"
    return _problem(record, Reason.PROCESSES_UNREADABLE, what)


def _problem(record: SandboxRecord, reason: Reason, message: str) -> Problem:
    return Problem(step=Step.RECOVER, reason=reason, subject=record.actor, message=message)
