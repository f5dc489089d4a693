"""`python -m sim.grids.part CHUNK [FOLDER]`: one part of a sweep, in a process of its own; its rows go to stdout."""

from __future__ import annotations

import sys

import attrs

from statemachine.problem import ProblemError

from .running import run_chunk
from .work import Refusal, Told, chunk_of


def main(words: list[str]) -> None:
    """Run the chunk that the first argument is, with traces from the folder that the second one names."""
    packed, *folders = words
    try:
        told = Told(rows=run_chunk(chunk_of(packed), *folders))
    except ProblemError as error:
        told = Told(refusal=Refusal(**{name: str(text) for name, text in attrs.asdict(error.problem).items()}))
    sys.stdout.buffer.write(told.packed())


if __name__ == "__main__":
    main(sys.argv[1:])
