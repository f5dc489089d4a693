"""The durable volumes in the steps: there before a start, in the snapshot of a suspend, put back for a restore.

What is put back counts once verify has seen the actor serve. Whatever ends the start before that brings the volumes
back that were there, with all that a life which failed has written since its last snapshot. Once it counts they are
removed, beside the running actor: verify has seconds, and they may be millions of files.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from actors import volumes
from actors.manifest import VOLUMES_NAME
from actors.ports import DamagedArchiveError
from actors.proof import unwritten
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.manifest import Manifest
    from actors.steps.stage import Stage

_log = structlog.get_logger("greenroom.volumes")


async def make_volumes(stage: Stage, step: Step) -> None:
    """The volumes of a cold start: those that are there stay, the others are empty.

    Raises:
        ProblemError: StateUnwritable, InsufficientDisk.
    """
    names = stage.assignment.durable_volumes
    if not names:
        return
    with _reported(step, stage.directory.volumes, "made"):
        await volumes.settle(stage.ports.files, stage.directory)
        await volumes.make(stage.ports.files, stage.directory, names)


async def measure_volumes(stage: Stage) -> int:
    """About how much the volumes will take in a snapshot.

    Raises:
        ProblemError: StateUnwritable: they cannot be looked through.
    """
    names = stage.assignment.durable_volumes
    if not names:
        return 0
    with _reported(Step.SUSPEND, stage.directory.volumes, "measured"):
        return await stage.ports.files.measure_volumes(stage.directory.volumes, names)


async def save_volumes(stage: Stage, directory: Path) -> None:
    """Write the volumes of a frozen actor into the directory of its snapshot.

    Raises:
        ProblemError: StateUnwritable, InsufficientDisk.
    """
    names = stage.assignment.durable_volumes
    if not names:
        return
    archive = directory / VOLUMES_NAME
    with _reported(Step.SUSPEND, archive, "saved"):
        saved = await volumes.save(stage.ports.files, stage.directory, names, archive)
    if saved.left_out:
        _log.warning("left_out", actor=stage.assignment.uid, left_out=list(saved.left_out))
    await stage.mark(Step.SUSPEND, "VolumesWritten")


async def restore_volumes(stage: Stage, directory: Path, manifest: Manifest) -> None:
    """Give the volumes the content that a verified snapshot holds.

    Raises:
        ProblemError: SnapshotCorrupt, StateUnwritable, InsufficientDisk.
    """
    if not manifest.volumes:
        await make_volumes(stage, Step.RESTORE)
        return
    archive = directory / VOLUMES_NAME
    with _reported(Step.RESTORE, stage.directory.volumes, "put back"):
        try:
            await volumes.put_back(stage.ports.files, stage.directory, manifest.volumes, archive)
        except DamagedArchiveError as error:
            message = f"{archive} cannot be unpacked: {error.strerror}"
            raise ProblemError(
                Problem(step=Step.RESTORE, reason=Reason.SNAPSHOT_CORRUPT, subject=str(archive), message=message)
            ) from error
    await stage.mark(Step.RESTORE, "VolumesRestored")


async def confirm_volumes(stage: Stage, step: Step) -> None:
    """The start has succeeded: what was put back counts.

    Raises:
        ProblemError: StateUnwritable.
    """
    if stage.assignment.durable_volumes:
        with _reported(step, stage.directory.volumes, "kept"):
            await volumes.confirm(stage.ports.files, stage.directory)
    stage.confirmed.set()


async def discard_replaced(stage: Stage) -> None:
    """Wait until the start counts, and remove what it has replaced."""
    if not stage.assignment.durable_volumes:
        return
    await stage.confirmed.wait()
    await volumes.discard(stage.ports.files, stage.directory)


async def keep_volumes(stage: Stage) -> None:
    """The containers are to end as they are: what they have written stays. What fails is told, and hinders no end."""
    try:
        await confirm_volumes(stage, Step.TEARDOWN)
    except ProblemError as error:
        _log.warning("unsettled", actor=stage.assignment.uid, message=error.problem.message)
    else:
        await discard_replaced(stage)


async def settle_volumes(stage: Stage) -> None:
    """The activation has ended. What it has put back and nobody has confirmed is undone.

    What cannot be undone now is undone before the next start.
    """
    if not stage.assignment.durable_volumes:
        return
    try:
        await volumes.settle(stage.ports.files, stage.directory)
    except OSError as error:
        message = error.strerror or str(error)
        _log.warning("unsettled", actor=stage.assignment.uid, file=error.filename, message=message)


@contextmanager
def _reported(step: Step, subject: Path, what: str) -> Iterator[None]:
    """Do something with the volumes, whose failure is a problem of the step."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        message = f"the durable volumes cannot be {what}{where}: {error.strerror or error}"
        raise ProblemError(
            Problem(step=step, reason=unwritten(error), subject=str(subject), message=message)
        ) from error
