"""assign: the assignment is on disk before anything else is done with it.

Makes `actors/<uid>/assignment.json` and `logs/`. Undone by nothing: it is the memory of what is wanted.
Refuses: StateUnwritable.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from actors.assignment import WorkerAssignment
from actors.codec import CodecError, loads, plain, structure
from statemachine.events import AssignmentRecorded
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.layout import ActorDir
    from actors.ports import Files
    from actors.steps.stage import Stage

FORMAT: Final = 1


async def record_assignment(stage: Stage) -> AssignmentRecorded:
    """Perform RecordAssignment."""
    async with stage.recording:
        await write_assignment(stage.ports.files, stage.directory, stage.assignment)
    return AssignmentRecorded()


async def adopt_assignment(stage: Stage, assignment: WorkerAssignment) -> None:
    """Go on with this assignment, written durably.

    The step may be recording the one before: it must not be what is written last.

    Raises:
        ProblemError: StateUnwritable; the old one stands.
    """
    async with stage.recording:
        try:
            await write_assignment(stage.ports.files, stage.directory, assignment)
        except ProblemError:
            # It may have been renamed before something failed, and what was refused must not come with the next start.
            with anyio.CancelScope(shield=True), suppress(ProblemError):
                await write_assignment(stage.ports.files, stage.directory, stage.assignment)
            raise
        stage.assignment = assignment


async def write_assignment(files: Files, directory: ActorDir, assignment: WorkerAssignment) -> None:
    """Write an admitted assignment durably.

    Raises:
        ProblemError: StateUnwritable.
    """
    document = orjson.dumps({"v": FORMAT, "assignment": plain(assignment)}) + b"\n"
    try:
        # Admission wrote it, and each try writes it again: what is there was replaced durably, after the directories
        # were made, and a look is cheaper than five syncs.
        if not await _stands_there(files, directory.assignment, document):
            await files.make_directory(directory.logs)
            await files.replace(directory.assignment, document)
    except OSError as error:
        raise ProblemError(
            Problem(
                step=Step.ASSIGN,
                reason=Reason.STATE_UNWRITABLE,
                subject=str(directory.assignment),
                message=f"the assignment cannot be written: {error.strerror or error}",
            )
        ) from error


async def _stands_there(files: Files, path: Path, document: bytes) -> bool:
    try:
        return await files.read(path, limit_bytes=len(document)) == document
    except OSError:  # absent, or larger
        return False


async def read_assignment(files: Files, path: Path) -> WorkerAssignment:
    """Read an assignment that an earlier life of the worker admitted.

    Raises:
        ProblemError: StateCorrupt, NewerFormat.
        OSError: it cannot be read.
    """
    try:
        document = loads(await files.read(path, limit_bytes=8 << 20))
        version = document["v"]
        if type(version) is int and version > FORMAT:
            message = f"it has format {version}; this version reads up to {FORMAT}"
            raise ProblemError(_unusable(path, Reason.NEWER_FORMAT, message))
        if type(version) is not int or version < 1:
            raise ProblemError(_unusable(path, Reason.STATE_CORRUPT, f"there is no format {version!r:.20}"))
        return structure(document["assignment"], WorkerAssignment)
    except (CodecError, KeyError, TypeError) as error:
        raise ProblemError(_unusable(path, Reason.STATE_CORRUPT, str(error))) from error


def _unusable(path: Path, reason: Reason, message: str) -> Problem:
    return Problem(
        step=Step.RECOVER, reason=reason, subject=str(path), message=f"{path.name} cannot be used: {message}"
    )
