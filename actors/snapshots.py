"""Snapshots as the machine sees them: found, looked at, kept in number. Their content is `manifest` and `proof`."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from actors.codec import epoch_s
from actors.manifest import MANIFEST_NAME, read_manifest
from actors.proof import verify
from statemachine.actor import Snapshot
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from actors.manifest import Manifest
    from actors.ports import Files, Wall

KEPT: Final = 2
"""Snapshots that stay on the worker per actor: the newest, and the one before it."""

REMOVED_NAME: Final = ".removed-manifest.json"
"""What the manifest of a snapshot that is being removed is called."""

_ID: Final = re.compile(r"s[0-9a-f]{16}")


def fresh_snapshot_id(wall: Wall) -> str:
    """A name for a new snapshot."""
    return f"s{wall.fresh_id()}"


def is_snapshot_id(name: str) -> bool:
    """Whether a directory of this name is ours: we made it, and may remove it."""
    return _ID.fullmatch(name) is not None


def uri_of(directory: Path) -> str:
    """The URI of a snapshot on this worker."""
    return directory.as_uri()


def directory_of(uri: str, *, step: Step = Step.RESTORE) -> Path:
    """The directory that a `file:` URI names.

    Raises:
        ProblemError: NotSupported for another scheme or host, SnapshotMissing when it names no absolute path.
    """
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise ProblemError(_problem(step, Reason.SNAPSHOT_MISSING, uri, f"{uri} is no URI: {error}")) from error
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise ProblemError(_problem(step, Reason.NOT_SUPPORTED, uri, f"snapshots are read from file: URIs, not {uri}"))
    # A path is bytes: whatever is no UTF-8 in it goes through as it is.
    path = unquote(parts.path, errors="surrogateescape")
    if not path.startswith("/") or "\0" in path:
        raise ProblemError(_problem(step, Reason.SNAPSHOT_MISSING, uri, f"{uri} names no absolute path"))
    return Path(path)


def snapshot_of(manifest: Manifest, directory: Path) -> Snapshot:
    """What the machine remembers of a snapshot."""
    return Snapshot(
        id=manifest.id,
        uri=uri_of(directory),
        created_at=epoch_s(manifest.created_at),
        exited=manifest.exited,
    )


async def look_at_snapshot(files: Files, uri: str, *, step: Step) -> Snapshot:
    """Look at the manifest of the snapshot that a URI names.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, NotSupported.
    """
    directory = directory_of(uri, step=step)
    return snapshot_of(await read_manifest(files, directory, step=step), directory)


async def find_snapshot(files: Files, uri: str, *, step: Step) -> Snapshot:
    """Look at the snapshot that a URI names, and verify it.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat, NotSupported.
    """
    directory = directory_of(uri, step=step)
    manifest = await read_manifest(files, directory, step=step)
    await verify(files, directory, manifest, step=step)
    return snapshot_of(manifest, directory)


async def verify_snapshot(files: Files, snapshot: Snapshot, *, step: Step = Step.TEARDOWN) -> None:
    """Verify a known snapshot again.

    Raises:
        ProblemError: SnapshotMissing, SnapshotCorrupt, NewerFormat.
    """
    await find_snapshot(files, snapshot.uri, step=step)


async def newest(files: Files, snapshots: Path) -> Snapshot | None:
    """The newest snapshot below a directory that has a believable manifest; None when there is none."""
    found = await _believed(files, snapshots, await _names(files, snapshots))
    return found[-1] if found else None


async def prune(files: Files, snapshots: Path, *, proven: str, in_use: Collection[str] = ()) -> None:
    """Remove the older snapshots of an actor: all but the one just proven and the KEPT - 1 newest of the others.

    What is in use, is not ours, or cannot be read (a newer format, a damaged manifest), stays. The one just proven
    stays whatever the clock said when it was made. A failure leaves a snapshot for the next time.
    """
    others = [name for name in await _names(files, snapshots) if name != proven]
    older = [snapshot.id for snapshot in await _believed(files, snapshots, others)]
    for name in older[: -(KEPT - 1)]:
        if name not in in_use:
            await _remove(files, snapshots / name)
    await _remove_unproven(files, snapshots, [name for name in others if name not in older])


async def remove_unproven(files: Files, snapshots: Path) -> None:
    """Remove our directories without a manifest: they are no snapshots and never will be, their writer is gone."""
    await _remove_unproven(files, snapshots, await _names(files, snapshots))


async def _remove_unproven(files: Files, snapshots: Path, names: Iterable[str]) -> None:
    for name in names:
        if await has_no_manifest(files, snapshots / name):
            with suppress(OSError):
                await _remove_but_a_snapshot(files, snapshots / name)


async def _remove_but_a_snapshot(files: Files, directory: Path) -> None:
    """Remove what was seen to have no manifest; one that is there after all is put back, and nothing is removed."""
    try:
        await files.rename(directory / MANIFEST_NAME, directory / REMOVED_NAME)
    except FileNotFoundError:
        await files.remove_tree(directory)
    else:
        await files.rename(directory / REMOVED_NAME, directory / MANIFEST_NAME)


async def has_no_manifest(files: Files, directory: Path) -> bool:
    """Whether there is certainly none, so that it is no snapshot: what cannot be looked at may have one.

    A file system that keeps in mind which names are absent (NFS) may not see one that was just made elsewhere; then its
    directory still lists it.
    """
    try:
        if await files.lstat(directory / MANIFEST_NAME) is not None:
            return False
        return MANIFEST_NAME not in await files.list_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return True  # there is no directory either
    except OSError:
        return False


async def remove(files: Files, directory: Path) -> None:
    """Remove a snapshot, proven or not: first its manifest, so that what is left of it at any moment is no snapshot.

    Raises:
        OSError: something of it stays.
    """
    with suppress(FileNotFoundError):
        # A removal is not durable, a rename is: no power cut brings back a manifest of files that are gone.
        await files.rename(directory / MANIFEST_NAME, directory / REMOVED_NAME)
    await files.remove_tree(directory)


async def _remove(files: Files, directory: Path) -> None:
    try:
        await remove(files, directory)
    except OSError:
        return


async def _believed(files: Files, snapshots: Path, names: Iterable[str]) -> list[Snapshot]:
    """Those with a believable manifest, oldest first; one that was copied here is not."""
    found: list[Snapshot] = []
    for name in names:
        try:
            snapshot = snapshot_of(await read_manifest(files, snapshots / name), snapshots / name)
        except ProblemError:
            continue
        if snapshot.id == name:
            found.append(snapshot)
    return sorted(found, key=lambda snapshot: (snapshot.created_at, snapshot.id))


async def _names(files: Files, snapshots: Path) -> list[str]:
    """The names below a directory that are ours."""
    try:
        return list(filter(is_snapshot_id, await files.list_directory(snapshots)))
    except OSError:
        return []


def _problem(step: Step, reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=step, reason=reason, subject=subject, message=message)
