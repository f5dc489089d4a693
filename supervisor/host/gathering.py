"""Looks that are asked for at the same moment, done in one visit to a thread.

A visit wakes a thread and then the loop: were there one for each of a hundred files that have grown, an idle machine
would be woken two hundred times to find a few lines. Only looks that change nothing come here, all of them at one disk:
one that hangs keeps the others waiting, and none of those who wait from being cancelled.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import attrs
from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Result = TypeVar("_Result")


@attrs.frozen
class _Asked(Generic[_Result]):
    """One look; `found` is what it found, or why it could not look."""

    look: Callable[[], _Result]
    found: Future[_Result] = attrs.field(factory=Future)
    is_done: anyio.Event = attrs.field(factory=anyio.Event)


class Gathering:
    """Gathers them. Its `serve` is the caller's to run."""

    def __init__(self) -> None:
        self._asked: list[_Asked[Any]] = []
        self._has_more = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)

    async def run(self, look: Callable[[], _Result]) -> _Result:
        """Look in the thread, in one visit with all that is asked for until it comes there."""
        asked = _Asked(look)
        self._asked.append(asked)
        self._has_more.set()
        await asked.is_done.wait()
        return asked.found.result()

    async def serve(self) -> None:
        """Do what is asked for, until cancelled."""
        while True:
            await self._has_more.wait()
            self._has_more = anyio.Event()
            asked, self._asked = self._asked, []
            await to_thread.run_sync(_look, asked, abandon_on_cancel=True, limiter=self._thread)
            for each in asked:
                each.is_done.set()


def _look(every: Sequence[_Asked[Any]]) -> None:
    for each in every:
        try:
            each.found.set_result(each.look())
        except Exception as error:  # noqa: BLE001 - it is raised again where it was asked for
            each.found.set_exception(error)
