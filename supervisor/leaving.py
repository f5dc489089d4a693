"""How a worker leaves, whatever it is that ends it: no sandbox outlives it, and its last line tells of every actor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.left import left_by
from supervisor.leftovers import end_leftovers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from actors.layout import StateDir
    from actors.ports import Files, Ports
    from supervisor.draining import Drained
    from supervisor.left import Left
    from supervisor.shutdown import Shutdown
    from supervisor.worker import Worker

LEFTOVERS_S: Final = 30.0
"""How long the end of what is left may take; after a drain less, see `Shutdown.at_last`."""
_Last = Callable[[], AbstractContextManager[anyio.CancelScope]]
"""Bounds one part of the end by what is left for all of them."""

_log = structlog.get_logger("greenroom.run")


@attrs.define
class Leaving:
    """What is known when the worker leaves.

    Attributes:
        worker: it; None as long as there is none.
        drained: what came of its drain; None when a fault ends it.
        left: what became of every actor, once it has left.
    """

    worker: Worker | None = None
    drained: Drained | None = None
    left: Left | None = None


@asynccontextmanager
async def leaving_nothing(
    ports: Ports, state_dir: StateDir, shutdown: Shutdown, tell: Callable[[Left], None]
) -> AsyncIterator[Leaving]:
    """However the body ends, by a drain, a fault or a cancellation: nothing is left, and what became of all is told.

    Args:
        ports: all of them.
        state_dir: the worker's.
        shutdown: how long the end may take.
        tell: is given what became of every actor.
    """
    leaving = Leaving()
    try:
        yield leaving
    except BaseException:
        with suppress(Exception):  # it is told, and hides not why we end
            await _leave(ports, state_dir, shutdown, leaving, tell)
        raise
    await _leave(ports, state_dir, shutdown, leaving, tell)


async def _leave(
    ports: Ports, state_dir: StateDir, shutdown: Shutdown, leaving: Leaving, tell: Callable[[Left], None]
) -> None:
    # All parts have these seconds together: what a pod has beyond the deadline is known, whichever of them hang.
    last = partial(shutdown.at_last, LEFTOVERS_S, began_at=anyio.current_time())
    worker = leaving.worker
    unseen: tuple[str, ...] = ()
    try:
        if worker is not None:
            with last():
                unseen = await _not_recovered(ports.files, state_dir, worker)
        try:
            await _end_what_is_left(ports, state_dir, last)
        finally:
            if worker is not None:
                await _sweep(ports, state_dir, worker, last)
    finally:
        # Nothing is awaited from here on: what became of all is told for certain.
        if worker is not None:
            leaving.left = left_by(worker, leaving.drained, unseen)
            shutdown.is_over = True
            _say(leaving.left)
            tell(leaving.left)


async def _sweep(ports: Ports, state_dir: StateDir, worker: Worker, last: _Last) -> None:
    """The next start sweeps as well: whatever happens here costs nothing but room."""
    try:
        with last():
            await worker.cgroups.sweep(ports, state_dir.sandboxes)
    except Exception:  # noqa: BLE001 - a fault of ours hides not what became of the actors
        _log.exception("fault", reason=str(Reason.INTERNAL))


def _say(left: Left) -> None:
    """The last line of the log."""
    log = _log.bind(
        actors=left.as_json(),
        not_recovered=list(left.not_recovered),
        not_uploaded=list(left.not_uploaded),
        late=list(left.late),
        killed=list(left.killed),
    )
    (log.error if left.problems else log.info)("left")


async def _end_what_is_left(ports: Ports, state_dir: StateDir, last: _Last) -> None:
    try:
        with last() as patience:
            await end_leftovers(ports, state_dir)
    except ProblemError as error:
        _log.error("leftovers", reason=str(error.problem.reason), message=error.problem.message)
        raise
    except Exception:
        _log.exception("fault", reason=str(Reason.INTERNAL))
        raise
    if patience.cancelled_caught:
        problem = _left_behind(state_dir)
        _log.error("leftovers", reason=str(problem.reason), message=problem.message)
        raise ProblemError(problem)


async def _not_recovered(files: Files, state_dir: StateDir, worker: Worker) -> tuple[str, ...]:
    """The actors that an earlier life of the worker left, and that this one did not come to look at."""
    if worker.has_recovered:
        return ()
    known = {life.uid for life in worker.lives}
    with suppress(OSError):
        return tuple(uid for uid in await files.list_directory(state_dir.actors) if uid not in known)
    return ()


def _left_behind(state_dir: StateDir) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.STEP_DEADLINE_EXCEEDED,
        subject=str(state_dir.sandboxes),
        message=f"what is left of sandboxes below {state_dir.sandboxes} did not end in time",
        hint="The worker's next start ends what is left.",
    )
