"""Chunks in processes of this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import attrs

from sim.beside import PartLostError, beside, run_part

from .answers import PART, RUN_S, Losses, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actors.ports import Processes

    from .answers import Take
    from .rows import Row
    from .work import Chunk


@attrs.frozen
class LocalProcesses:
    """A Runner: so many processes beside each other."""

    count: int

    def __call__(self, chunks: Iterable[Chunk], take: Take) -> None:
        """Run all of them."""
        anyio.run(partial(self._run, iter(chunks), take))

    async def _run(self, chunks: Iterator[Chunk], take: Take) -> None:
        losses = Losses()

        async def perform(port: Processes, chunk: Chunk) -> None:
            # Whoever has lost it begins it anew: the others may have come to their end, with nothing left to take.
            rows, how = await _tried(port, chunk)
            while rows is None and losses.may_be_tried_again(chunk, how):
                rows, how = await _tried(port, chunk)
            if rows is not None:
                take(rows)

        await beside(chunks, self.count, perform)
        losses.tell()


async def _tried(port: Processes, chunk: Chunk) -> tuple[tuple[Row, ...] | None, str]:
    """The rows of a chunk; None and why there are none."""
    try:
        told = await run_part(port, PART, chunk.packed(), deadline_s=RUN_S * len(chunk.runs))
    except PartLostError as error:
        return None, str(error)
    return rows_of(chunk, told), "it told other rows than it was asked for"
