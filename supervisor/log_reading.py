"""What a container wrote, in pieces."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.assignment import WorkerAssignment
    from actors.layout import ActorDir
    from actors.ports import Files

PIECE_BYTES: Final = 1 << 18


async def read_log(
    files: Files, directory: ActorDir, assignment: WorkerAssignment, container: str, *, offset_bytes: int
) -> dict[str, Any]:
    """One piece of a container's log from an offset: `{data, nextOffset_bytes, size_bytes}`, data in base64.

    Raises:
        ProblemError: InvalidRequest when the actor has no such container; UnreadableFile.
    """
    names = [each.name for each in assignment.containers]
    if container not in names:
        message = f"actor {assignment.uid} has no container {container!r}; it has {', '.join(names)}"
        raise ProblemError(_problem(Reason.INVALID_REQUEST, container, message))
    path = directory.log(container)
    try:
        stat = await files.stat(path)
        data = await files.read_from(path, offset_bytes=offset_bytes, limit_bytes=PIECE_BYTES)
    except FileNotFoundError:
        stat, data = None, b""
    except OSError as error:
        message = f"the log of {container} cannot be read: {error.strerror or error}"
        raise ProblemError(_problem(Reason.UNREADABLE_FILE, container, message)) from error
    return {
        "data": base64.b64encode(data).decode(),
        "nextOffset_bytes": offset_bytes + len(data),
        "size_bytes": stat.size_bytes if stat else 0,
    }


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=subject, message=message)
