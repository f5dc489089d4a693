"""Documents that a command was given by their files' names, and how problems name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.admission import admit
from actors.document import unreadable
from statemachine.problem import Problem, ProblemError
from statemachine.wording import file_label

if TYPE_CHECKING:
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.ports import Files

READ_LIMIT_BYTES: Final = (1 << 20) + 1
"""One byte more than a document may have, so that it is refused by the reader's own rule."""


async def admitted(files: Files, file: Path) -> WorkerAssignment:
    """An assignment that a file holds.

    Raises:
        ProblemError: every problem of it, in document order.
    """
    try:
        data = await files.read(file, limit_bytes=READ_LIMIT_BYTES)
        return await admit(data, base=file.parent, files=files)
    except OSError as error:
        raise ProblemError(in_file(unreadable(error), str(file))) from error
    except ProblemError as error:
        raise ProblemError(*(in_file(problem, str(file)) for problem in error.problems)) from error


def in_file(problem: Problem, name: str) -> Problem:
    """The problem as one of this file: where several were given, its document path alone says too little."""
    return attrs.evolve(problem, message=f"{file_label(name)}: {problem.subject}: {problem.message}")
