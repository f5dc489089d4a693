"""Why a worker does not take on an actor or what is asked of one, or does not know it. Pure."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import attrs

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path


def not_found(uid: str) -> Problem:
    """Nobody has this uid here."""
    return Problem(step=Step.ADMISSION, reason=Reason.ACTOR_NOT_FOUND, subject=uid, message=f"no actor {uid!r} is here")


def full(here: int, most: int) -> Problem:
    """There are as many actors as there may be."""
    message = f"{here} actors are here, and --max-actors is {most}"
    return Problem(step=Step.ADMISSION, reason=Reason.WORKER_FULL, subject="worker", message=message)


def unwritable(uid: str, error: OSError) -> Problem:
    """What must be on disk before an actor begins is not."""
    message = f"the state of actor {uid} cannot be written: {error.strerror or error}"
    return Problem(step=Step.ASSIGN, reason=Reason.STATE_UNWRITABLE, subject=uid, message=message)


def terminated(uid: str) -> Problem:
    """What is asked of it comes too late."""
    message = f"actor {uid} has ended"
    return Problem(step=Step.ADMISSION, reason=Reason.ACTOR_TERMINATED, subject=uid, message=message)


def no_socket(path: Path, error: OSError) -> Problem:
    """Nothing can listen at this path."""
    if error.errno == errno.EADDRINUSE:
        return Problem(
            step=Step.SUPERVISE,
            reason=Reason.STATE_DIR_IN_USE,
            subject=str(path),
            message=f"another worker listens at {path}, or something that is no socket is there",
            hint="Stop the other worker (`greenroom status --run-dir` shows it), or use another --run-dir.",
        )
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.STATE_UNWRITABLE,
        subject=str(path),
        message=f"the socket {path} cannot be made: {error.strerror or error}",
        hint="Use another --run-dir; a socket's path has at most 107 bytes.",
    )


def draining() -> Problem:
    """Why nothing is begun any more, and why a drained actor ended."""
    message = "the worker was asked to shut down"
    return Problem(step=Step.SUPERVISE, reason=Reason.WORKER_DRAINING, subject="worker", message=message)


def out_of_time() -> Problem:
    """Why an actor was not suspended: the drain has no time left for it."""
    message = "the worker was asked to shut down, and the time for suspends was over"
    return Problem(step=Step.SUPERVISE, reason=Reason.WORKER_DRAINING, subject="worker", message=message)


def not_suspended(why: Problem | None) -> Problem:
    """Why a drain stops an actor that it could not suspend: the cause of that is told, for its memory goes with it."""
    if why is None or why.reason is Reason.WORKER_DRAINING:
        return draining()
    return attrs.evolve(why, message=f"it was stopped, as the worker shuts down, and not suspended: {why.message}")
