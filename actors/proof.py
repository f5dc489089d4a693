"""Whether a snapshot's files are what they should be: proven when they are saved, verified before they are restored.

Measured on runsc 20240729: it syncs nothing to disk, and a flipped byte of pages.img is restored without complaint and
breaks the application later. So the sizes and digests here are the only protection there is.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from actors.concurrency import together
from actors.manifest import CHECKPOINT_FILES, MANIFEST_NAME, SnapshotFile
from actors.ports import FileKind
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from actors.manifest import Manifest
    from actors.ports import Files

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the kernel says when there is no room."""
_T = TypeVar("_T")


def unwritten(error: OSError) -> Reason:
    """Why something of a snapshot was not written: there is no room for it, or it cannot be."""
    return Reason.INSUFFICIENT_DISK if error.errno in _FULL else Reason.STATE_UNWRITABLE


async def prove(
    files: Files, directory: Path, *, required: Iterable[str] = CHECKPOINT_FILES, step: Step = Step.SUSPEND
) -> tuple[SnapshotFile, ...]:
    """Make the files of a fresh snapshot durable and return them with sizes and digests, by name.

    Syncing and hashing overlap: one waits for the disk, the other for the processor.

    Args:
        files: the port.
        directory: the snapshot's; every file in it becomes part of the snapshot.
        required: files that must be there and not empty.
        step: the step that problems belong to.

    Raises:
        ProblemError: RuntimeFailed when a required file is missing or empty, or something else than a file is there;
            InsufficientDisk, StateUnwritable when the files cannot be made durable.
    """
    sizes = await _reported(partial(_sizes, files, directory, required, step), directory, step)
    digests: dict[str, str] = {}

    async def sync() -> None:
        await _reported(partial(files.sync_tree, directory), directory, step)

    async def digest() -> None:
        # One after the other: nearly all of it is in one of them.
        for name in sizes:
            digests[name] = await _reported(partial(files.digest, directory / name), directory, step)

    await together(sync, digest)
    return tuple(SnapshotFile(name=name, size_bytes=sizes[name], blake3=digests[name]) for name in sorted(sizes))


async def verify(files: Files, directory: Path, manifest: Manifest, *, step: Step = Step.RESTORE) -> None:
    """Compare a snapshot's files with its manifest, by size first and then by content; other files are let be.

    Raises:
        ProblemError: SnapshotCorrupt, once for each file that differs, in the manifest's order.
    """
    faults = await faults_of(files, directory, manifest)
    problems = damage(faults, snapshot=directory.name, place=str(directory), step=step)
    if problems:
        raise ProblemError(*problems)


def damage(faults: Mapping[str, str | None], *, snapshot: str, place: str, step: Step) -> tuple[Problem, ...]:
    """The problem of each file that is not as it was.

    Args:
        faults: by name, as `faults_of` has them.
        snapshot: its id.
        place: the directory or the URI that the files are below.
        step: the step that the problems belong to.
    """
    return tuple(
        Problem(
            step=step,
            reason=Reason.SNAPSHOT_CORRUPT,
            subject=f"{place}/{name}",
            message=f"snapshot {snapshot}: {name} {fault}",
        )
        for name, fault in faults.items()
        if fault is not None
    )


async def faults_of(files: Files, directory: Path, manifest: Manifest) -> dict[str, str | None]:
    """What is wrong with each file of a snapshot; None of one that is as the manifest says.

    A file that its scope demands and the manifest does not name is one of them.
    """
    faults: dict[str, str | None] = {}
    for file in manifest.files:
        faults[file.name] = await _fault_of_size(files, directory / file.name, file)
    faults |= dict.fromkeys(manifest.absent, "is not in the manifest or empty there; no snapshot of its scope is so")
    # A wrong size is known at once; hashing gigabytes would only delay it. Nearly all of them are in one file.
    if not any(faults.values()):
        for file in manifest.files:
            faults[file.name] = await _fault_of_content(files, directory / file.name, file)
    return faults


async def _reported(act: Callable[[], Awaitable[_T]], directory: Path, step: Step) -> _T:
    """Do something with the files, whose failure is a problem of the step."""
    try:
        return await act()
    except OSError as error:
        message = f"the files of the checkpoint in {directory} cannot be made durable: {error.strerror or error}"
        raise ProblemError(
            Problem(step=step, reason=unwritten(error), subject=str(directory), message=message)
        ) from error


async def _sizes(files: Files, directory: Path, required: Iterable[str], step: Step) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in await files.list_directory(directory):
        found = await files.lstat(directory / name)
        if found is None or found.kind is not FileKind.REGULAR or name == MANIFEST_NAME:
            raise ProblemError(_unproven(step, directory, f"{name!r} is no file of a fresh checkpoint"))
        sizes[name] = found.size_bytes
    for name in required:
        if not sizes.get(name):
            word = "is empty" if name in sizes else "is missing"
            raise ProblemError(_unproven(step, directory, f"{name} {word} although the checkpoint succeeded"))
    return sizes


def _unproven(step: Step, directory: Path, message: str) -> Problem:
    return Problem(step=step, reason=Reason.RUNTIME_FAILED, subject=str(directory), message=message)


async def _fault_of_size(files: Files, path: Path, file: SnapshotFile) -> str | None:
    try:
        found = await files.lstat(path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if found is None:
        return "is missing"
    if found.kind is not FileKind.REGULAR:
        return "is not a regular file"
    if found.size_bytes != file.size_bytes:
        return f"has {found.size_bytes} bytes, the manifest says {file.size_bytes}"
    return None


async def _fault_of_content(files: Files, path: Path, file: SnapshotFile) -> str | None:
    try:
        digest = await files.digest(path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return None if digest == file.blake3 else f"has BLAKE3 {digest}, the manifest says {file.blake3}"
