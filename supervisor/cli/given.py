"""Documents that a command was given by their files' names, and how problems name them."""

from __future__ import annotations

from typing import Final

import attrs

from statemachine.problem import Problem
from statemachine.wording import file_label

READ_LIMIT_BYTES: Final = (1 << 20) + 1
"""One byte more than a document may have, so that it is refused by the reader's own rule."""


def in_file(problem: Problem, name: str) -> Problem:
    """The problem as one of this file: where several were given, its document path alone says too little."""
    return attrs.evolve(problem, message=f"{file_label(name)}: {problem.subject}: {problem.message}")
