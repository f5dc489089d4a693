"""Which snapshots of an actor stay when a person wants only some of them kept: never is the last good one removed.

Good means that every byte was read and is right: what was damaged meanwhile keeps no other one from being the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.codec import CodecError, loads
from actors.snapshots import remove
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.kept_snapshots import STEP, KeptSnapshot, faults_in, kept_here

if TYPE_CHECKING:
    from pathlib import Path

    from actors.layout import StateDir
    from actors.ports import Files, Ports

_STATUS_BYTES_MAX: Final = 16 << 20


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
        ProblemError: ActorNotFound, UnreadableFile; StateCorrupt when it is not known what another actor needs.
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
    """The snapshots that some actor, this one too, names as its last good one. Who is over goes back to none."""
    needed = set[str]()
    try:
        uids = await files.list_directory(state_dir.actors)
    except FileNotFoundError:
        return frozenset()
    for uid in uids:
        path = state_dir.actor(uid).status
        try:
            status = loads(await files.read(path, limit_bytes=_STATUS_BYTES_MAX))
            good = status["lastGoodSnapshot"]
            if good is not None and status["state"] != State.TERMINATED:
                needed.add(good["id"])
        except FileNotFoundError:
            continue  # only its snapshots outlived it
        except (OSError, CodecError, KeyError, TypeError) as error:
            message = f"{path} does not say which snapshot actor {uid} goes back to: {error}"
            raise ProblemError(
                Problem(step=Step.RECOVER, reason=Reason.STATE_CORRUPT, subject=str(path), message=message)
            ) from error
    return frozenset(needed)
