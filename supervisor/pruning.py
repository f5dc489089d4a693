"""Which snapshots of an actor stay when a person wants only some of them kept: never is the last good one removed.

Good means that every byte was read and is right: what was damaged meanwhile keeps no other one from being the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from actors.assignment import SnapshotAt
from actors.codec import CodecError, loads
from actors.snapshots import directory_of, remove
from actors.steps.assign import read_assignment
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.kept_snapshots import STEP, KeptSnapshot, faults_in, kept_here

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.layout import StateDir
    from actors.ports import Files, Ports

_STATUS_BYTES_MAX: Final = 16 << 20
_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Pruning:
    """What stays and what goes.

    Attributes:
        kept: those that are good, and those that somebody may have to go back to; newest first.
        damaged: those that are not; they stay, and are named.
        removed: those that go, or would.
    """

    kept: tuple[KeptSnapshot, ...]
    damaged: tuple[KeptSnapshot, ...]
    removed: tuple[KeptSnapshot, ...]


async def plan_pruning(ports: Ports, state_dir: StateDir, uid: str, *, keep: int) -> Pruning:
    """Decide; nothing is touched.

    Raises:
        ProblemError: ActorNotFound, UnreadableFile; StateCorrupt, NewerFormat when it is not known what an actor needs.
    """
    newest_first = tuple(reversed(await kept_here(ports.files, state_dir, uid)))
    needed = await _needed(ports.files, state_dir)
    kept, damaged, removed = list[KeptSnapshot](), list[KeptSnapshot](), list[KeptSnapshot]()
    good = 0
    for each in newest_first:
        if each.problem is not None:
            damaged.append(each)
        elif good >= keep:
            (kept if each.id in needed else removed).append(each)
        elif any((await faults_in(ports, each)).values()):
            damaged.append(each)
        else:
            good += 1
            kept.append(each)
    return Pruning(kept=tuple(kept), damaged=tuple(damaged), removed=tuple(removed))


async def prune_as_planned(ports: Ports, pruning: Pruning) -> None:
    """Remove what goes.

    Raises:
        ProblemError: StateUnwritable; something of a snapshot stays, but no manifest.
    """
    for each in pruning.removed:
        if each.directory is not None:
            await _remove(ports.files, each.directory)


async def _remove(files: Files, directory: Path) -> None:
    try:
        await remove(files, directory)
    except OSError as error:
        message = f"{directory} cannot be removed: {error.strerror or error}"
        raise ProblemError(
            Problem(step=STEP, reason=Reason.STATE_UNWRITABLE, subject=str(directory), message=message)
        ) from error


async def _needed(files: Files, state_dir: StateDir) -> frozenset[str]:
    """The snapshots that some actor, this one too, may have to go back to. Who is over goes back to none.

    As `origins.needed_by_others`, of what a worker has written down: the last good one, and the one that is assigned.
    """
    try:
        uids = await files.list_directory(state_dir.actors)
    except FileNotFoundError:
        return frozenset()
    needed = set[str]()
    for uid in uids:
        actor = state_dir.actor(uid)
        status = await _written(actor.status, _status(files, actor.status))
        if status is not None and status.is_over:
            continue
        assignment = await _written(actor.assignment, read_assignment(files, actor.assignment))
        needed |= set() if status is None else status.last_good
        needed |= set() if assignment is None else _assigned(assignment)
    return frozenset(needed)


@attrs.frozen(kw_only=True)
class _Status:
    """What a status file says of the snapshots."""

    last_good: frozenset[str]
    is_over: bool


async def _status(files: Files, path: Path) -> _Status:
    status = loads(await files.read(path, limit_bytes=_STATUS_BYTES_MAX))
    good = status["lastGoodSnapshot"]
    return _Status(
        last_good=frozenset() if good is None else frozenset({good["id"]}),
        is_over=status["state"] == State.TERMINATED,
    )


def _assigned(assignment: WorkerAssignment) -> frozenset[str]:
    if not isinstance(assignment.snapshot, SnapshotAt):
        return frozenset()
    try:
        return frozenset({directory_of(assignment.snapshot.uri).name})
    except ProblemError:  # it lies in a store
        return frozenset()


async def _written(path: Path, reading: Awaitable[_T]) -> _T | None:
    """What a file of an actor says; None where there is none, since only its snapshots have outlived it."""
    try:
        return await reading
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, CodecError, KeyError, TypeError) as error:
        message = f"{path} does not say which snapshot actor {path.parent.name} goes back to: {error}"
        raise ProblemError(
            Problem(step=Step.RECOVER, reason=Reason.STATE_CORRUPT, subject=str(path), message=message)
        ) from error
