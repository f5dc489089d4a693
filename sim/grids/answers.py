"""What a part has told, held against what it was asked for; and how often a part that told nothing is begun anew."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import msgspec

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .work import Chunk, told_of

if TYPE_CHECKING:
    from .rows import Row

PART = "sim.grids.part"
RUN_S: Final = 3600.0
"""How long one run of a part may take."""
TRIES_MAX: Final = 3
"""So often a chunk is begun whose process does not come to its end."""

Take = Callable[["tuple[Row, ...]"], None]
"""Is given the rows of each chunk, as soon as they are there, once."""


class Runner(Protocol):
    """Runs chunks somewhere, several beside each other."""

    def __call__(self, chunks: Iterable[Chunk], take: Take) -> None:
        """Run all of them; one that is lost for good does not keep the others from being run.

        Raises:
            ProblemError: SweepIncomplete: some are lost; SweepUnavailable; what a run refuses, at once.
        """
        ...


@attrs.define
class Losses:
    """How often each chunk was lost, and what was said of it last."""

    tries: dict[str, int] = attrs.field(factory=dict)
    problems: list[Problem] = attrs.field(factory=list)

    def may_be_tried_again(self, chunk: Chunk, how: str) -> bool:
        """Note a loss."""
        first = chunk.runs[0]
        tries = self.tries[first.key] = self.tries.get(first.key, 0) + 1
        if tries < TRIES_MAX:
            return True
        subject = f"seeds {first.seed} to {chunk.runs[-1].seed}"
        message = f"{len(chunk.runs)} runs, {subject}, were begun {tries} times: {how}"
        self.problems.append(
            Problem(step=Step.SUPERVISE, reason=Reason.SWEEP_INCOMPLETE, subject=subject, message=message, detail=how)
        )
        return False

    def tell(self) -> None:
        """Raise what was lost for good, if anything was."""
        if self.problems:
            raise ProblemError(*self.problems)


def rows_of(chunk: Chunk, packed: bytes) -> tuple[Row, ...] | None:
    """The rows of a chunk; None if these are not all of them, and no others.

    Raises:
        ProblemError: what the part refused.
    """
    try:
        told = told_of(packed)
    except (zlib.error, msgspec.DecodeError):
        return None
    if (refusal := told.refusal) is not None:
        raise ProblemError(
            Problem(
                step=Step(refusal.step),
                reason=Reason(refusal.reason),
                subject=refusal.subject,
                message=refusal.message,
                hint=refusal.hint,
                detail=refusal.detail,
            )
        )
    is_whole = [row.key for row in told.rows] == [run.key for run in chunk.runs]
    return told.rows if is_whole else None
