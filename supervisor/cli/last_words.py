"""What `greenroom run` leaves for those who only look at its pod: the termination message, written whatever ends it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.termination_log import find_termination_log, write_termination_log
from supervisor.termination_message import termination_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from supervisor.left import Left

_log = structlog.get_logger("greenroom.run")


@contextmanager
def last_words(given: Path | None) -> Iterator[Callable[[Left], None]]:
    """Write the message when the body has ended, which hands in what became of the actors. It costs nobody anything.

    Args:
        given: the file that was named; None is the one that Kubernetes makes, if it is there.
    """
    left: list[Left] = []
    try:
        yield left.append
    except BaseException as error:
        _write(given, left, _problems_of(error))
        raise
    _write(given, left, ())


def _write(given: Path | None, left: Sequence[Left], problems: Sequence[Problem]) -> None:
    path = find_termination_log(given)
    if path is None:
        return
    try:
        write_termination_log(path, termination_message(left[-1] if left else None, problems))
    except OSError as error:
        message = error.strerror or str(error)
        _log.warning("unwritten", file=str(path), reason=str(Reason.OUTPUT_UNWRITABLE), message=message)


def _problems_of(error: BaseException) -> tuple[Problem, ...]:
    """Why it ends, out of the groups that task groups made."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ProblemError):
        return error.problems
    message = f"{type(error).__name__}: {error}"
    return (Problem(step=Step.SUPERVISE, reason=Reason.INTERNAL, subject=type(error).__name__, message=message),)
