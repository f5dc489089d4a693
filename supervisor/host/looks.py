"""Looks at the host that can hang and change nothing: whoever is cancelled leaves one behind.

A file server that does not answer, or a broken disk, keeps a thread in the kernel for as long as it likes. Who asks
with a deadline must come back all the same. Only what changes nothing and hands out nothing may be left so: of a write,
nobody would know whether it was done, and a descriptor would be nobody's.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

AGAIN_S: Final = 0.1
"""Where all places are taken by what hangs, it is looked so often whether one of them has ended."""


class Looks:
    """Threads for them.

    A look that was left behind keeps its place until it has really ended, so that there are never more threads than
    places, however often somebody asks of what hangs. Who finds no place waits, and can be cancelled.

    Args:
        places: how many look side by side.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._callers = anyio.CapacityLimiter(places)
        self._begun: list[_Look[Any]] = []

    async def run(self, look: Callable[[], _Result]) -> _Result:
        """Look in a thread."""
        async with self._callers:
            # At most `places` have a caller, so something was left behind.
            while self._is_full():  # noqa: ASYNC110 - a thread that was left behind must not need the loop to end
                await anyio.sleep(AGAIN_S)
            mine = _Look(look)
            self._begun.append(mine)
            try:
                # A limiter of its own: asyncio gives the place of what is left behind away at once, trio does not.
                return await to_thread.run_sync(mine.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
            finally:
                mine.forgo()

    def _is_full(self) -> bool:
        self._begun = [each for each in self._begun if not each.is_over]
        return len(self._begun) >= self._places


class _Look(Generic[_Result]):
    """One look, which ends in its thread, or never begins there because its caller has gone before."""

    def __init__(self, look: Callable[[], _Result]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._has_begun = False
        self.is_over = False

    def run(self) -> _Result:
        """In the thread."""
        with self._lock:
            if self.is_over:
                raise InterruptedError  # nobody is there to hear it
            self._has_begun = True
        try:
            return self._look()
        finally:
            self.is_over = True

    def forgo(self) -> None:
        """The caller goes: what has not begun will not."""
        with self._lock:
            self.is_over = self.is_over or not self._has_begun
