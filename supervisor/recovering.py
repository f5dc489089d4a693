"""The start on a state directory that an earlier life of the worker left.

What is provably ours (a process with `--root=` below our sandboxes on its command line, a directory below
`sandboxes/`) is ended. Actors that were active are Failed with SupervisorRestarted; resting ones are as they were;
snapshots stay. What cannot be read is set aside and named, never deleted, and costs no other actor anything. All of
it before work is taken on.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors import journal as journals
from actors import snapshots
from actors.assignment import SnapshotAt
from actors.runsc.teardown import end_activation, find_leftovers
from actors.steps.assign import read_assignment
from statemachine.actor import Snapshot
from statemachine.events import Finding, Recovered
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State
from supervisor.life import Entrance
from supervisor.memory import adapt, first_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.journal import Replayed
    from actors.layout import ActorDir, StateDir
    from actors.ports import Ports, ProcessIdentity
    from actors.runsc.teardown import Leftover
    from statemachine.actor import Actor
    from statemachine.events import Event
    from supervisor.worker import Worker

JOURNAL_LIMIT_BYTES: Final = journals.LIMIT_BYTES
KILLS_MAX: Final = 128
"""Processes that are killed side by side: each holds a descriptor until it is gone."""
KILL_S: Final = 5.0
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")

_log = structlog.get_logger("greenroom.recover")


async def recover(ports: Ports, state_dir: StateDir, worker: Worker) -> None:
    """Bring the worker to where it can take on work. One that drains meanwhile leaves the rest to its next start."""
    await end_leftovers(ports, state_dir)
    for directory in (state_dir.root, state_dir.refused):
        await _sweep(ports, directory)
    for uid in await _names(ports, state_dir.actors):
        if worker.draining:
            return
        # Whatever one actor's directory holds costs no other actor anything.
        try:
            await _recover_actor(ports, state_dir.actor(uid), worker)
        except ProblemError as error:
            _tell(uid, error)
        except OSError as error:
            _tell(uid, ProblemError(_unreadable(state_dir.actor(uid).root, error)))
        except Exception:  # noqa: BLE001 - a fault of ours
            _log.exception("fault", actor=uid, reason=str(Reason.INTERNAL))


async def end_leftovers(ports: Ports, state_dir: StateDir) -> None:
    """End every activation that has a process or a directory: at the start, and when a drain's deadline left some."""
    leftovers = await find_leftovers(ports.processes, ports.files, state_dir.sandboxes)
    await _kill_at_once(ports, leftovers)
    for leftover in leftovers:
        try:
            await end_activation(ports.processes, ports.files, state_dir.activation(leftover.activation))
        except ProblemError as error:
            _tell(leftover.activation, error)
        else:
            _log.info("ended", activation=leftover.activation, processes=len(leftover.processes))


async def _kill_at_once(ports: Ports, leftovers: Sequence[Leftover]) -> None:
    """Kill every process of every activation before any is cleared away.

    To end an activation means to look at every process of the machine, more than once: with some thousand of them, one
    after the other, that takes minutes, and a shutdown has seconds. What stays is met, and told, by that end.
    """
    limit = anyio.CapacityLimiter(KILLS_MAX)

    async def kill(identity: ProcessIdentity) -> None:
        async with limit:
            with suppress(OSError):  # DeadlineExceededError is one
                await ports.processes.kill_and_wait(identity, deadline_s=KILL_S)

    async with anyio.create_task_group() as group:
        for leftover in leftovers:
            for identity in leftover.processes:
                group.start_soon(kill, identity)


async def _recover_actor(ports: Ports, directory: ActorDir, worker: Worker) -> None:
    try:
        assignment = await read_assignment(ports.files, directory.assignment)
    except FileNotFoundError:
        return  # only its snapshots outlived it
    except OSError as error:
        raise ProblemError(_unreadable(directory.assignment, error)) from error
    except ProblemError:
        # The two belong together: the next life of this actor begins a new journal.
        await _set_aside(ports, directory.assignment)
        await _set_aside(ports, directory.journal)
        raise
    if assignment.uid != directory.root.name:
        raise ProblemError(_of_another(directory, assignment))
    await snapshots.remove_unproven(ports.files, directory.snapshots)
    await _sweep(ports, directory.root)
    replayed = await _replay(ports, directory)
    actor = adapt(replayed.actor, assignment) if replayed else first_memory(assignment, None)
    actor = await _with_newest(ports, directory, actor)
    if replayed is None:
        actor = attrs.evolve(actor, state=State.CREATING, origin=None, pending=None)
    await worker.resume_life(
        assignment,
        attrs.evolve(actor, held=()),
        entrance=_entrance(actor, assignment),
        seq=replayed.seq if replayed else 0,
        lines=replayed.lines if replayed else 0,
        since_s=replayed.since_s if replayed else ports.wall.now_s(),
        source=await _named(ports, assignment),
    )


async def _sweep(ports: Ports, directory: Path) -> None:
    """Remove what an atomic replace leaves when its process is killed in the middle: `.NAME.<16 hex digits>.tmp`."""
    for name in await _names(ports, directory):
        if _TEMPORARY.fullmatch(name):
            try:
                await ports.files.remove_file(directory / name)
            except OSError as error:
                _log.warning("unusable", file=str(directory / name), message=error.strerror or str(error))


async def _named(ports: Ports, assignment: WorkerAssignment) -> Snapshot | None:
    """The snapshot that an assignment names. One that cannot be looked at is named all the same: restore says why."""
    if not isinstance(assignment.snapshot, SnapshotAt):
        return None
    try:
        return await snapshots.look_at_snapshot(ports.files, assignment.snapshot.uri, step=Step.RECOVER)
    except ProblemError:
        return Snapshot(id="", uri=assignment.snapshot.uri, created_at=0.0)


def _entrance(actor: Actor, assignment: WorkerAssignment) -> Entrance | Event:
    if actor.state in INACTIVE:
        return Entrance.AT_REST
    if actor.last_good is None:
        hint = f"There is no snapshot of it: `greenroom resume {assignment.uid}` starts it anew."
    else:
        hint = f"`greenroom resume {assignment.uid}` goes on from snapshot {actor.last_good.id}."
    return Recovered(
        finding=Finding.DEAD,
        problem=Problem(
            step=Step.RECOVER,
            reason=Reason.SUPERVISOR_RESTARTED,
            subject=assignment.uid,
            message=f"the supervisor ended while actor {assignment.uid} was {actor.state}; its sandbox is gone",
            hint=hint,
        ),
    )


async def _replay(ports: Ports, directory: ActorDir) -> Replayed | None:
    """What the journal tells; None when it cannot be used and was set aside."""
    try:
        data = await ports.files.read(directory.journal, limit_bytes=JOURNAL_LIMIT_BYTES)
        replayed = journals.replay(data, subject=str(directory.journal))
    except OSError as error:
        _tell(directory.root.name, ProblemError(_unreadable(directory.journal, error)))
    except ProblemError as error:
        _tell(directory.root.name, error)
    else:
        if replayed.torn_bytes:
            # What is appended later must not become part of the torn line.
            await ports.files.truncate(directory.journal, size_bytes=len(data) - replayed.torn_bytes)
        return replayed
    await _set_aside(ports, directory.journal)
    return None


async def _with_newest(ports: Ports, directory: ActorDir, actor: Actor) -> Actor:
    """A snapshot whose manifest was written is good, even if the journal did not live to say so."""
    newest = await snapshots.newest(ports.files, directory.snapshots)
    if newest is None or (actor.last_good is not None and actor.last_good.created_at >= newest.created_at):
        return actor
    return attrs.evolve(actor, last_good=newest)


async def _set_aside(ports: Ports, path: Path) -> None:
    aside = path.with_name(f"{path.name}.aside-{ports.wall.fresh_id()}")
    try:
        await ports.files.rename(path, aside)
        _log.warning("set_aside", file=str(path), kept_as=str(aside))
    except FileNotFoundError:
        return
    except OSError as error:
        message = error.strerror or str(error)
        _log.error("unwritten", file=str(path), reason=str(Reason.STATE_UNWRITABLE), message=message)


async def _names(ports: Ports, path: Path) -> tuple[str, ...]:
    try:
        return await ports.files.list_directory(path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ProblemError(_unreadable(path, error)) from error


def _tell(subject: str, error: ProblemError) -> None:
    for problem in error.problems:
        _log.warning("unusable", subject=subject, reason=str(problem.reason), message=problem.message)


def _of_another(directory: ActorDir, assignment: WorkerAssignment) -> Problem:
    return Problem(
        step=Step.RECOVER,
        reason=Reason.STATE_CORRUPT,
        subject=str(directory.assignment),
        message=f"{directory.root.name} holds the assignment of actor {assignment.uid}; it is left as it is",
    )


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(
        step=Step.RECOVER,
        reason=Reason.STATE_CORRUPT,
        subject=str(path),
        message=f"{path.name} cannot be read: {error.strerror or error}",
    )
