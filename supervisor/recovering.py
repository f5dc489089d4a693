"""The start on a state directory that an earlier life of the worker left. docs/recovery.md has the table.

A sandbox that lives is taken over, and its actor is Running as if nothing had been; what was half done is finished or
undone; what is lost is Failed with SupervisorRestarted, its cause, and its last good snapshot. What is provably ours (a
process with `--root=` below our sandboxes on its command line, a directory below `sandboxes/`) and nobody goes on with
is ended. Resting actors are as they were; snapshots stay. What cannot be read is set aside and named, never deleted,
and costs no other actor anything. All of it before work is taken on.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors import journal as journals
from actors import snapshots
from actors.assignment import DesiredState, SnapshotAt
from actors.named_snapshots import recall_named
from actors.steps.assign import read_assignment
from actors.steps.recover import LIVE
from statemachine.actor import Snapshot
from statemachine.events import Finding, Recovered, SnapshotProven
from statemachine.machine import Refused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, State
from supervisor.admitting import wish_of
from supervisor.leftovers import Unended, end_all, end_survivors, tell_unusable, unended
from supervisor.life import Entrance
from supervisor.mailbox import Adoption
from supervisor.memory import adapt, first_memory, successor_memory
from supervisor.setting_aside import set_aside

if TYPE_CHECKING:
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.journal import Replayed
    from actors.layout import ActorDir, StateDir
    from actors.ports import Ports
    from actors.runsc.reclaiming import Survivor
    from statemachine.actor import Actor
    from statemachine.events import Event
    from supervisor.life import Life
    from supervisor.surveying import Survey
    from supervisor.worker import Worker

JOURNAL_LIMIT_BYTES: Final = journals.LIMIT_BYTES
SIDE_BY_SIDE_MAX: Final = 16
"""Actors that are taken over side by side: for each a runsc is waited for."""
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")

_log = structlog.get_logger("greenroom.recover")


@attrs.frozen(kw_only=True)
class Recovery:
    """What came of it.

    Attributes:
        has_seen_all: whether every actor was looked at.
        unended: what could not be ended, and no actor knows of; `end_until_gone` is for them.
    """

    has_seen_all: bool
    unended: tuple[Unended, ...]


async def recover(ports: Ports, state_dir: StateDir, worker: Worker, found: Survey) -> Recovery:
    """Bring the worker to where it can take on work. One that drains meanwhile leaves the rest to its next start.

    What lives is taken over all the same, so that the drain does with it what it does with every actor.
    """
    has_seen_all = True
    left = [Unended(activation=name) for name in await end_all(ports, state_dir, found.dead)]
    for directory in (state_dir.root, state_dir.refused):
        await _sweep(ports, directory)
    await _sweep_specs(ports, state_dir.cdi)
    uids = await _names(ports, state_dir.actors)
    limit = anyio.CapacityLimiter(SIDE_BY_SIDE_MAX)

    async def take_over(uid: str) -> None:
        async with limit:
            left.extend(await _recover_safely(ports, state_dir, worker, uid, found.alive[uid]))

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
    for uid in sorted(found.alive.keys() - set(uids)):
        left.extend(unended(worker, uid, await end_survivors(ports, state_dir, worker, found.alive[uid])))
    await worker.cgroups.sweep(ports, state_dir.sandboxes)
    return Recovery(has_seen_all=has_seen_all, unended=tuple(left))


async def _recover_safely(
    ports: Ports, state_dir: StateDir, worker: Worker, uid: str, survivors: tuple[Survivor, ...]
) -> list[Unended]:
    """Whatever one actor's directory holds costs no other actor anything. Returns what it does not know of."""
    left: list[Unended] = []
    try:
        await _recover_actor(ports, state_dir, worker, uid, survivors, left=left)
    except ProblemError as error:
        tell_unusable(uid, error)
    except OSError as error:
        tell_unusable(uid, ProblemError(_unreadable(state_dir.actor(uid).root, error)))
    except Exception:  # noqa: BLE001 - a fault of ours
        _log.exception("fault", actor=uid, reason=str(Reason.INTERNAL))
    if worker.find(uid) is None:
        return unended(worker, uid, await end_survivors(ports, state_dir, worker, survivors))
    return left


async def _recover_actor(
    ports: Ports, state_dir: StateDir, worker: Worker, uid: str, survivors: tuple[Survivor, ...], *, left: list[Unended]
) -> None:
    """Go on with one actor. `left` gets what cannot be ended and is not its own to undo, however this ends."""
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
    # At rest all is written down; what else is there is of an earlier life, which a cold start has forgotten.
    saved = None if replayed and actor.state in INACTIVE else await _newer(ports, directory, actor)
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
        names = await end_survivors(ports, state_dir, worker, survivors)
        if names and life.actor.held:  # one is held on to, and undone again by the actor's own steps
            life.inherit(names[0])
            left.extend(Unended(activation=name) for name in names[1:])
        else:
            left.extend(unended(worker, uid, names))
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
    """Remove what an atomic replace leaves when its process is killed in the middle: `.NAME.<16 hex digits>.tmp`.

    That is a file, or a directory of links.
    """
    for name in await _names(ports, directory):
        if _TEMPORARY.fullmatch(name):
            try:
                try:
                    await ports.files.remove_file(directory / name)
                except IsADirectoryError:
                    await ports.files.remove_tree(directory / name)
            except OSError as error:
                _log.warning("unusable", file=str(directory / name), message=error.strerror or str(error))


async def _sweep_specs(ports: Ports, cdi: Path) -> None:
    """The same of the directory of each CDI spec, in which links are made. What stands there costs no start."""
    try:
        for name in await _names(ports, cdi):
            await _sweep(ports, cdi / name)
    except ProblemError as error:
        tell_unusable("cdi", error)


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
        tell_unusable(directory.root.name, ProblemError(_unreadable(directory.journal, error)))
    except ProblemError as error:
        tell_unusable(directory.root.name, error)
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
