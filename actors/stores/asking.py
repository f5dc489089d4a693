"""Calls to a store, each with its bound, and what becomes of it when the store does not do it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK_S: Final = 60.0
"""For a small object or a listing."""
CHUNK_S: Final = 600.0
"""For a chunk: a link that needs longer brings no snapshot anywhere."""
CHUNKS_AT_ONCE: Final = 2
"""Of one snapshot. Each holds some five megabytes on its way up, see `supervisor.host.objects`."""


@contextmanager
def answering(subject: str, *, step: Step, reason: Reason = Reason.STORE_UNREACHABLE) -> Iterator[None]:
    """What the store does not do is a problem, and so is what goes wrong on the way to it.

    Raises:
        ProblemError: of this reason.
    """
    try:
        yield
    except OSError as error:
        raise ProblemError(refused(subject, error, step=step, reason=reason)) from error


def refused(subject: str, error: OSError, *, step: Step, reason: Reason) -> Problem:
    """The problem of a call that the store did not do."""
    about = f" ({error.filename})" if error.filename and str(error.filename) != subject else ""
    what = "did not reach its store" if reason is Reason.SNAPSHOT_NOT_UPLOADED else "cannot be had from its store"
    message = f"{subject} {what}: {error.strerror or error}{about}"
    return Problem(step=step, reason=reason, subject=subject, message=message)
