"""A chunk, run in this process, one run after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sim.replay.outlets import loaded
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.foreign import parent
from supervisor.host.reading import digest

from .rows import Row
from .work import Kind, code_digest, kept_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .work import Chunk, Point

WAYS: Final[Mapping[Kind, str]] = {
    Kind.REPLAY: "sim.grids.replaying:replayed",
    Kind.CHAOS: "sim.grids.breaking:broken",
}
"""Kind of a run -> what makes its own columns; loaded when there is one, for a process begins with each chunk."""


def run_chunk(chunk: Chunk, folder: str | None = None) -> tuple[Row, ...]:
    """All rows of a chunk.

    Args:
        chunk: the runs.
        folder: where the traces are, each under its digest; None is where they were when the chunk was made.

    Raises:
        ProblemError: SweepUnavailable: the code here is another one, or a trace; whatever a run refuses.
    """
    if (code := code_digest()) != chunk.code:
        raise _other("code", code, chunk.code)
    points = {point.number: point for point in chunk.points}
    places = {point.number: _place(point, folder) for point in chunk.points}
    starter, rows = parent(), []
    for run in chunk.runs:
        if parent() != starter:
            break  # whoever wanted these rows has gone
        point = points[run.point]
        found = loaded(WAYS[point.kind])(point, places[run.point], run.seed)
        told = {
            "key": run.key,
            "kind": str(point.kind),
            "trace": point.trace,
            "trace_digest": point.digest,
            "source": None,
            "engine": point.engine,
            "config": point.config,
            "overrides": point.overrides,
            "seed": run.seed,
            "code": chunk.code,
        }
        rows.append(Row(**{**told, **found}))
    return tuple(rows)


def _place(point: Point, folder: str | None) -> Path:
    """Where its trace is, as long as it is the same one."""
    if point.place is None or point.digest is None:
        return Path()
    place = Path(point.place) if folder is None else Path(folder, kept_name(point.place, point.digest))
    try:
        found = digest(place)
    except OSError as error:
        message = f"{place} cannot be read: {error.strerror or error}"
        problem = Problem(step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(place), message=message)
        raise ProblemError(problem) from error
    if found != point.digest:
        raise _other(f"trace {point.trace}", found, point.digest)
    return place


def _other(what: str, found: str, wanted: str) -> ProblemError:
    message = f"the {what} that is to be run has the digest {wanted:.12}, and here it has {found:.12}"
    hint = "Install the same Greenroom wherever runs are made, and change nothing while a sweep goes on."
    return ProblemError(
        Problem(step=Step.SUPERVISE, reason=Reason.SWEEP_UNAVAILABLE, subject=what, message=message, hint=hint)
    )
