"""Why a worker does not take on an actor or what is asked of one, or does not know it. Pure."""

from __future__ import annotations

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason


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


def draining() -> Problem:
    """Why nothing is begun any more, and why a drained actor ended."""
    message = "the worker was asked to shut down"
    return Problem(step=Step.SUPERVISE, reason=Reason.WORKER_DRAINING, subject="worker", message=message)
