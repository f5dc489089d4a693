"""The start on a state directory that an earlier life of the worker left. docs/recovery.md has the table.

A sandbox that lives is taken over, and its actor is Running as if nothing had been; what was half done is finished or
undone; what is lost is Failed with SupervisorRestarted, its cause, and its last good snapshot. What is provably ours (a
process with `--root=` below our sandboxes on its command line, a directory below `sandboxes/`) and nobody goes on with
is ended. Resting actors are as they were; snapshots stay. What cannot be read is set aside and named, never deleted,
and costs no other actor anything. All of it before work is taken on.
"""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors import journal as journals
from actors import snapshots
from actors.assignment import DesiredState, SnapshotAt
from actors.named_snapshots import recall_named
from actors.runsc.teardown import Leftover, end_activation, find_leftovers
from actors.steps.assign import read_assignment
from actors.steps.recover import LIVE
from statemachine.actor import Snapshot
from statemachine.events import Finding, Recovered, SnapshotProven
from statemachine.machine import Refused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, State
from supervisor.admitting import wish_of
from supervisor.life import Entrance
from supervisor.mailbox import Adoption
from supervisor.memory import adapt, first_memory, successor_memory
from supervisor.setting_aside import set_aside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.journal import Replayed
    from actors.layout import ActorDir, StateDir
    from actors.ports import Ports, ProcessIdentity
    from actors.runsc.reclaiming import Survivor
    from statemachine.actor import Actor
    from statemachine.events import Event
    from supervisor.life import Life
    from supervisor.surveying import Survey
    from supervisor.worker import Worker

JOURNAL_LIMIT_BYTES: Final = journals.LIMIT_BYTES
KILLS_MAX: Final = 128
"""Processes that are killed side by side: each holds a descriptor until it is gone."""
KILL_S: Final = 5.0
SIDE_BY_SIDE_MAX: Final = 16
"""Actors that are taken over side by side: for each a runsc is waited for."""
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")

_log = structlog.get_logger("greenroom.recover")


async def recover(ports: Ports, state_dir: StateDir, worker: Worker, found: Survey) -> bool:
    """Bring the worker to where it can take on work. One that drains meanwhile leaves the rest to its next start.

    What lives is taken over all the same, so that the drain does with it what it does with every actor.

    Returns:
        Whether it has looked at every actor.
    """
    has_seen_all = True
    await _end(ports, state_dir, found.dead)
    for directory in (state_dir.root, state_dir.refused):
        await _sweep(ports, directory)
    uids = await _names(ports, state_dir.actors)
    limit = anyio.CapacityLimiter(SIDE_BY_SIDE_MAX)

    async def take_over(uid: str) -> None:
        async with limit:
            await _recover_safely(ports, state_dir, worker, uid, found.alive[uid])

    async with anyio.create_task_group() as group:
        for uid in filter(found.alive.__contains__, uids):
            group.start_soon(take_over, uid)
        for uid in uids:
            if uid in found.alive:
                continue
            if worker.draining:
                has_seen_all = False
                break
            await _recover_safely(ports, state_dir, worker, uid, ())
    for uid in found.alive.keys() - set(uids):
        await _end_survivors(ports, state_dir, worker, found.alive[uid])
    await worker.cgroups.sweep(ports, state_dir.sandboxes)
    return has_seen_all


async def _recover_safely(
    ports: Ports, state_dir: StateDir, worker: Worker, uid: str, survivors: tuple[Survivor, ...]
) -> None:
    """Whatever one actor's directory holds costs no other actor anything."""
    try:
        await _recover_actor(ports, state_dir, worker, uid, survivors)
    except ProblemError as error:
        _tell(uid, error)
    except OSError as error:
        _tell(uid, ProblemError(_unreadable(state_dir.actor(uid).root, error)))
    except Exception:  # noqa: BLE001 - a fault of ours
        _log.exception("fault", actor=uid, reason=str(Reason.INTERNAL))
    if worker.find(uid) is None:
        await _end_survivors(ports, state_dir, worker, survivors)


async def end_leftovers(ports: Ports, state_dir: StateDir) -> None:
    """End every activation that has a process or a directory: at the start, and when a drain's deadline left some."""
    await _end(ports, state_dir, await find_leftovers(ports.processes, ports.files, state_dir.sandboxes))


async def _end(ports: Ports, state_dir: StateDir, leftovers: Sequence[Leftover]) -> list[str]:
    """End activations; returns the names of those of which something is still there, which is told."""
    left: list[str] = []
    await kill_at_once(ports, leftovers)
    for leftover in leftovers:
        try:
            await end_activation(ports.processes, ports.files, state_dir.activation(leftover.activation))
        except ProblemError as error:
            left.append(leftover.activation)
            _tell(leftover.activation, error)
        else:
            _log.info("ended", activation=leftover.activation, processes=len(leftover.processes))
    return left


async def kill_at_once(ports: Ports, leftovers: Sequence[Leftover]) -> None:
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


async def _end_survivors(ports: Ports, state_dir: StateDir, worker: Worker, survivors: Sequence[Survivor]) -> list[str]:
    """End what nobody goes on with of one actor; its GPUs are free after that. Returns what is still there."""
    leftovers = [Leftover(activation=each.record.activation, processes=each.processes) for each in survivors]
    left = await _end(ports, state_dir, leftovers)
    if survivors and not left:
        worker.gpus.give_back(survivors[0].record.actor)
    return left


async def _recover_actor(
    ports: Ports, state_dir: StateDir, worker: Worker, uid: str, survivors: tuple[Survivor, ...]
) -> None:
    directory = state_dir.actor(uid)
    try:
        assignment = await read_assignment(ports.files, directory.assignment)
    except FileNotFoundError:
        # Only its snapshots outlived it, or its admission was cut off.
        await _sweep(ports, directory.root)
        return
    except OSError as error:
        raise ProblemError(_unreadable(directory.assignment, error)) from error
    except ProblemError:
        # The two belong together: the next life of this actor begins a new journal.
        await set_aside(ports, directory.assignment)
        await set_aside(ports, directory.journal)
        raise
    if assignment.uid != uid:
        raise ProblemError(_of_another(directory, assignment))
    await _sweep(ports, directory.root)
    replayed = await _replay(ports, directory)
    actor = adapt(replayed.actor, assignment) if replayed else first_memory(assignment, None)
    saved = await _newer(ports, directory, actor)
    actor = attrs.evolve(actor, last_good=saved or actor.last_good)
    if replayed is None:
        actor = attrs.evolve(actor, state=State.CREATING, origin=None, pending=None)
    life = worker.life_on_disk(
        assignment,
        actor,
        followed=replayed.generation or None if replayed else None,
        seq=replayed.seq if replayed else 0,
        lines=replayed.lines if replayed else 0,
        since_s=replayed.since_s if replayed else ports.wall.now_s(),
        source=await _named(ports, assignment, actor),
    )
    # Written in this very suspend: what is left of it is to end the sandbox.
    if saved is not None and (actor.state is not State.SUSPENDING or saved.created_at < life.since_s):
        saved = None
    lost = None if saved else await _take_over(life, survivors, replayed, boot_id=ports.wall.boot_id())
    if saved or lost:
        left = await _end_survivors(ports, state_dir, worker, survivors)
        if left:  # it is held on to, and undone again by the actor's own steps
            life.inherit(left[0])
        else:
            life.actor = attrs.evolve(life.actor, held=())
    # What a save left is nothing without its manifest; the commands that could write on have ended.
    await snapshots.remove_unproven(ports.files, directory.snapshots)
    entrance = SnapshotProven(snapshot=saved) if saved else _entrance(life, lost)
    await worker.resume_life(life, entrance)
    if entrance is not Entrance.AT_REST:
        await life.has_come.wait()  # what is told from now on is so
    if replayed and 0 < replayed.generation < assignment.generation:
        await _follow(worker, life)


async def _follow(worker: Worker, life: Life) -> None:
    """Act on a wish that was written down by a life of the worker that did not live to act on it."""
    assignment, source = life.assignment, life.source_now()
    named = source if isinstance(assignment.snapshot, SnapshotAt) else None
    wanted = assignment.desired_state
    has_ended = life.actor.state in FINAL
    if has_ended and wanted is DesiredState.TERMINATED:
        return
    async with worker.booked(assignment) if wanted is DesiredState.RUNNING else nullcontext():
        if has_ended:
            await worker.begin(assignment, successor_memory(life))
            return
        again = Adoption(assignment=assignment, actor=lambda actor: actor, source=named)
        outcome = await life.ask(wish_of(assignment, source), again)
        if isinstance(outcome, Refused):
            raise ProblemError(outcome.problem)


async def _take_over(
    life: Life, survivors: tuple[Survivor, ...], replayed: Replayed | None, *, boot_id: str
) -> str | None:
    """Go on with the sandbox of a life that was found on disk; returns why it cannot be, None when it is done."""
    state = life.actor.state
    if not survivors:
        is_new_boot = replayed is not None and replayed.boot_id != boot_id
        return "the machine was booted anew" if is_new_boot else "its sandbox is gone"
    if state not in LIVE:
        return "what was begun was not finished, and is undone"
    if len(survivors) > 1:
        return f"it had {len(survivors)} sandboxes, which were ended"
    try:
        await life.take_over(survivors[0])
    except ProblemError as error:
        return f"its sandbox was ended, since it could not be gone on with: {error.problem.message}"
    except Exception as error:  # noqa: BLE001 - a fault of ours costs an actor its sandbox, and not all that is known
        _log.exception("fault", actor=life.uid, reason=str(Reason.INTERNAL))
        return f"its sandbox was ended, since it could not be gone on with: {error!r}"
    _log.info("taken_over", actor=life.uid, activation=survivors[0].record.activation, state=str(state))
    return None


async def _sweep(ports: Ports, directory: Path) -> None:
    """Remove what an atomic replace leaves when its process is killed in the middle: `.NAME.<16 hex digits>.tmp`."""
    for name in await _names(ports, directory):
        if _TEMPORARY.fullmatch(name):
            try:
                await ports.files.remove_file(directory / name)
            except OSError as error:
                _log.warning("unusable", file=str(directory / name), message=error.strerror or str(error))


async def _named(ports: Ports, assignment: WorkerAssignment, actor: Actor) -> Snapshot | None:
    """The snapshot that an assignment names, as far as it is known: a restore says what is wrong with it."""
    if not isinstance(assignment.snapshot, SnapshotAt):
        return None
    uri = assignment.snapshot.uri
    known = next((each for each in (actor.origin, actor.last_good) if each and each.uri == uri), None)
    return known or await recall_named(ports.files, ports.stores, uri, step=Step.RECOVER)


def _entrance(life: Life, lost: str | None) -> Entrance | Event:
    """How a life goes on; `lost` says why it has no sandbox any more."""
    actor, uid = life.actor, life.uid
    if actor.state in INACTIVE and not actor.held:
        return Entrance.AT_REST
    if lost is None:
        hint = f"Ask again for what was under way: `greenroom suspend {uid}`."
    elif actor.last_good is None:
        hint = f"There is no snapshot of it: `greenroom resume {uid}` starts it anew."
    else:
        hint = f"`greenroom resume {uid}` goes on from snapshot {actor.last_good.id}."
    return Recovered(
        finding=Finding.ALIVE if lost is None else Finding.DEAD,
        problem=Problem(
            step=Step.RECOVER,
            reason=Reason.SUPERVISOR_RESTARTED,
            subject=uid,
            message=f"the supervisor ended while actor {uid} was {actor.state}; {lost or 'its sandbox lives on'}",
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
    await set_aside(ports, directory.journal)
    return None


async def _newer(ports: Ports, directory: ActorDir, actor: Actor) -> Snapshot | None:
    """A snapshot whose manifest was written is good, even if the journal did not live to say so."""
    newest = await snapshots.newest(ports.files, directory.snapshots)
    if newest is None or (actor.last_good is not None and actor.last_good.created_at >= newest.created_at):
        return None
    return newest


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
