"""The snapshots of a state directory or a store, as a person looks at them who asks no worker."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.codec import epoch_s
from actors.manifest import read_manifest
from actors.proof import faults_of
from actors.snapshots import directory_of, has_no_manifest, is_snapshot_id, uri_of
from actors.stores import StoredSnapshot, find_stored, list_stored, verify_stored_deeply
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from actors.layout import StateDir
    from actors.manifest import Manifest
    from actors.ports import Files, Ports, Stores

STEP: Final = Step.RESTORE
_NEAR: Final = 5


@attrs.frozen(kw_only=True)
class KeptSnapshot:
    """One snapshot, or what stands where one should.

    Attributes:
        actor: the uid that its place has.
        id: its name.
        uri: where it is.
        manifest: what it says; None when it cannot be read.
        directory: where it is on this machine; None of one in a store.
        problem: why it cannot be read.
    """

    actor: str
    id: str
    uri: str
    manifest: Manifest | None = None
    directory: Path | None = None
    problem: Problem | None = None

    @property
    def size_bytes(self) -> int:
        """What its files have together."""
        return 0 if self.manifest is None else self.manifest.size_bytes

    @property
    def age_key(self) -> tuple[float, str]:
        """By which snapshots of one actor are sorted, oldest first; what cannot be read is older than all."""
        return (0.0 if self.manifest is None else epoch_s(self.manifest.created_at), self.id)


async def kept_here(files: Files, state_dir: StateDir, uid: str | None = None) -> tuple[KeptSnapshot, ...]:
    """Every snapshot of a state directory, by actor and oldest first; what never became one is none.

    Args:
        files: only read.
        state_dir: the worker's.
        uid: whose; all when it is left out.

    Raises:
        ProblemError: ActorNotFound, with near ones; UnreadableFile.
    """
    uids = await _names(files, state_dir.actors)
    if uid is not None and uid not in uids:
        raise ProblemError(_unknown("actor", uid, uids, where=str(state_dir.actors), reason=Reason.ACTOR_NOT_FOUND))
    found = [
        each
        for each_uid in ([uid] if uid is not None else uids)
        for name in await _names(files, state_dir.actor(each_uid).snapshots)
        if is_snapshot_id(name)
        for each in await _at(files, state_dir.actor(each_uid).snapshot(name), each_uid)
    ]
    return tuple(sorted(found, key=lambda each: (each.actor, *each.age_key)))


async def kept_in_store(stores: Stores, uri: str, uid: str | None = None) -> tuple[KeptSnapshot, ...]:
    """Every snapshot of a store.

    Raises:
        ProblemError: StoreUnreachable, NotSupported.
    """
    found = []
    for each in await list_stored(stores, uri, step=STEP):
        if isinstance(each, StoredSnapshot):
            found.append(_of_store(each))
        else:
            actor, _, name = each.uri.rpartition("/")
            found.append(KeptSnapshot(actor=actor.rpartition("/")[2], id=name, uri=each.uri, problem=each.problem))
    return tuple(each for each in found if uid in {None, each.actor})


async def located(ports: Ports, state_dir: StateDir, name: str) -> KeptSnapshot:
    """The snapshot that a URI names, or an id in the state directory; its manifest has been read.

    Raises:
        ProblemError: SnapshotMissing, with near ids; SnapshotCorrupt, NewerFormat, StoreUnreachable, NotSupported.
    """
    if ":" not in name:
        return await _by_id(ports.files, state_dir, name)
    stored = await find_stored(ports.stores, name, step=STEP)
    if stored is not None:
        return _of_store(stored)
    directory = directory_of(name, step=STEP)
    manifest = await read_manifest(ports.files, directory, step=STEP)
    return KeptSnapshot(
        actor=manifest.actor, id=manifest.id, uri=uri_of(directory), manifest=manifest, directory=directory
    )


async def faults_in(ports: Ports, snapshot: KeptSnapshot) -> dict[str, str | None]:
    """What is wrong with each of its files, whose whole content is read; None of one that is as the manifest says.

    Raises:
        ProblemError: SnapshotMissing, NewerFormat, StoreUnreachable.
    """
    if snapshot.manifest is None:
        raise ValueError("its manifest was not read")
    if snapshot.directory is not None:
        return await faults_of(ports.files, snapshot.directory, snapshot.manifest)
    faults: dict[str, str | None] = {file.name: None for file in snapshot.manifest.files}
    try:
        await verify_stored_deeply(ports.stores, snapshot.uri, step=STEP)
    except ProblemError as error:
        for problem in error.problems:
            name = problem.subject.rpartition("/")[2]
            if problem.reason is not Reason.SNAPSHOT_CORRUPT or name not in faults:
                raise
            faults[name] = problem.message.removeprefix(f"{snapshot.uri}: {name}: ")
    return faults


async def _by_id(files: Files, state_dir: StateDir, name: str) -> KeptSnapshot:
    every = await kept_here(files, state_dir)
    found = next((each for each in every if each.id == name), None)
    if found is None:
        ids = [each.id for each in reversed(every)]
        raise ProblemError(_unknown("snapshot", name, ids, where=str(state_dir.actors), reason=Reason.SNAPSHOT_MISSING))
    if found.problem is not None:
        raise ProblemError(found.problem)
    return found


async def _at(files: Files, directory: Path, actor: str) -> tuple[KeptSnapshot, ...]:
    made: dict[str, Any] = {"actor": actor, "id": directory.name, "uri": uri_of(directory), "directory": directory}
    try:
        return (KeptSnapshot(**made, manifest=await read_manifest(files, directory, step=STEP)),)
    except ProblemError as error:
        if await has_no_manifest(files, directory):
            return ()  # being made, or being removed
        return (KeptSnapshot(**made, problem=error.problem),)


def _of_store(stored: StoredSnapshot) -> KeptSnapshot:
    manifest = stored.manifest
    return KeptSnapshot(actor=manifest.actor, id=manifest.id, uri=stored.uri, manifest=manifest)


async def _names(files: Files, directory: Path) -> tuple[str, ...]:
    try:
        return await files.list_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        message = f"{directory} cannot be read: {error.strerror or error}"
        raise ProblemError(
            Problem(step=STEP, reason=Reason.UNREADABLE_FILE, subject=str(directory), message=message)
        ) from error


def _unknown(what: str, name: str, known: Collection[str], *, where: str, reason: Reason) -> Problem:
    near = difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.5) or list(known)[:_NEAR]
    hint = f"There are {_listed(near)}." if near else f"There is no {what} at all below {where}."
    return Problem(step=STEP, reason=reason, subject=name, message=f"there is no {what} {name!r} here", hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
