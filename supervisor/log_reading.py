"""What a container wrote, in pieces, also those that are still to come."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from supervisor.container_logs import ContainerLogs, Piece
    from supervisor.life import Life
    from supervisor.log_keeping import LogKeeper

PIECE_BYTES: Final = 1 << 18
WAIT_MAX_S: Final = 60.0
_UNKEPT_S: Final = 1.0
"""Where nobody is told of writes, who waits looks again so late."""


async def read_log(
    logs: ContainerLogs,
    keeper: LogKeeper | None,
    life: Life,
    container: str,
    *,
    offset_bytes: int,
    wait_s: float,
) -> dict[str, Any]:
    """One piece of a container's log from an offset, data in base64, see `docs/cli.md`.

    Args:
        logs: the logs.
        keeper: tells of writes.
        life: the actor.
        container: its container.
        offset_bytes: where to begin; what is gone is left out, and the answer begins later then.
        wait_s: how long is waited for something when there is nothing.

    Raises:
        ProblemError: InvalidRequest when the actor has no such container; UnreadableFile.
    """
    names = [each.name for each in life.assignment.containers]
    if container not in names:
        message = f"actor {life.uid} has no container {container!r}; it has {', '.join(names)}"
        problem = _problem(Reason.INVALID_REQUEST, container, message)
        raise ProblemError(attrs.evolve(problem, hint=f"Name one of its containers: {', '.join(names)}."))
    try:
        piece = await _read(logs, keeper, life.uid, container, offset_bytes=offset_bytes, wait_s=wait_s)
    except OSError as error:
        message = f"the log of {container} cannot be read: {error.strerror or error}"
        raise ProblemError(_problem(Reason.UNREADABLE_FILE, container, message)) from error
    return {
        "data": base64.b64encode(piece.data).decode(),
        "offset_bytes": piece.offset_bytes,
        "nextOffset_bytes": piece.next_bytes,
        "size_bytes": piece.end_bytes,
        "state": str(life.actor.state),
    }


async def _read(
    logs: ContainerLogs, keeper: LogKeeper | None, uid: str, container: str, *, offset_bytes: int, wait_s: float
) -> Piece:
    until = anyio.current_time() + wait_s
    while True:
        grown = None if keeper is None else keeper.grown(uid)
        piece = await logs.read(uid, container, offset_bytes=offset_bytes, limit_bytes=PIECE_BYTES)
        left_s = until - anyio.current_time()
        if piece.data or left_s <= 0:
            return piece
        with anyio.move_on_after(left_s if grown is not None else min(left_s, _UNKEPT_S)):
            await (anyio.sleep_forever() if grown is None else grown.wait())
        if grown is not None and grown.is_set():
            # What has changed may be where the actor is, and whoever waits wants to know that as well.
            until = min(until, anyio.current_time())


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=subject, message=message)
