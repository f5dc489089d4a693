"""The generation rules: what a newly admitted document means beside what is known of its actor. Pure.

Lower: ignored. Equal and same content: no-op. Equal, other content: GenerationConflict. Higher: while the actor lives
only some fields may differ, else ImmutableField; after Terminated a new life begins. Source: DESIGN, "Generations".
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

from actors.content import mutable_difference
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from actors.assignment import WorkerAssignment


@attrs.frozen(kw_only=True)
class Known:
    """What is known of an actor: its newest admitted assignment and where it is."""

    assignment: WorkerAssignment
    state: State


class Verdict(enum.Enum):
    """What is to be done with a document."""

    BEGIN = "begin"
    """No life of this actor is here: begin one."""
    UPDATE = "update"
    """The actor lives: go on with the new generation."""
    SAME = "same"
    """It is the document that is followed already."""
    STALE = "stale"
    """A newer generation is followed already."""


def judge(known: Known | None, new: WorkerAssignment) -> Verdict:
    """Decide what a document means.

    Raises:
        ProblemError: GenerationConflict, or ImmutableField for each field that may not differ.
    """
    if known is None:
        return Verdict.BEGIN
    old = known.assignment
    if new.generation < old.generation:
        return Verdict.STALE
    if new.generation == old.generation:
        if new.digest == old.digest:
            return Verdict.SAME
        raise ProblemError(_conflict(new))
    if known.state is State.TERMINATED:
        return Verdict.BEGIN
    changed = mutable_difference(old, new)
    if changed:
        raise ProblemError(*(_immutable(path, old) for path in changed))
    return Verdict.UPDATE


def _conflict(new: WorkerAssignment) -> Problem:
    return Problem(
        step=Step.ADMISSION,
        reason=Reason.GENERATION_CONFLICT,
        subject="metadata.generation",
        message=f"generation {new.generation} of actor {new.uid} was admitted before with other content",
    )


def _immutable(path: str, old: WorkerAssignment) -> Problem:
    return Problem(
        step=Step.ADMISSION,
        reason=Reason.IMMUTABLE_FIELD,
        subject=path,
        message=f"{path} differs from generation {old.generation} of actor {old.uid}, which still lives",
    )
