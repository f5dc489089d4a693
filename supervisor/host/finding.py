"""Looking for processes by their arguments: to read every command line of the machine is dear, so a look is shared.

When a thousand actors end at once, each of them looks for what is left of it. A look that begins after they asked is as
good for all of them as for one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import attrs
from anyio import to_thread

from actors.ports import ProcessIdentity
from supervisor.host import procfs

if TYPE_CHECKING:
    from collections.abc import Callable

Found = tuple[tuple[ProcessIdentity, str], ...]
"""Processes by pid, each with the argument it was found by."""


@attrs.define(eq=False)
class _Asked:
    """What somebody looks for: one whole argument, or how one begins.

    Attributes:
        found: None until a look has ended that began after it was asked.
    """

    argument: bytes | None = None
    prefix: bytes | None = None
    found: Found | None = None


class SharedFinding:
    """One look at a time, for all who asked before it began.

    Args:
        limiter: of the threads in which is looked.
    """

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self._limiter = limiter
        self._turn = anyio.Lock()
        self._asked: dict[_Asked, None] = {}

    async def with_argument(self, argument: str) -> Found:
        """The processes with exactly this argument.

        Raises:
            OSError: /proc cannot be read: no descriptors left.
        """
        return await self._answer(_Asked(argument=os.fsencode(argument)))

    async def with_prefix(self, prefix: str) -> Found:
        """The processes with an argument that begins so, and the first one that does.

        Raises:
            OSError: /proc cannot be read: no descriptors left.
        """
        return await self._answer(_Asked(prefix=os.fsencode(prefix)))

    async def _answer(self, mine: _Asked) -> Found:
        self._asked[mine] = None
        try:
            async with self._turn:
                if mine.found is None:
                    await self._look()
            return mine.found or ()
        finally:
            self._asked.pop(mine, None)

    async def _look(self) -> None:
        # Those who ask from here on get the next look. Who asked is forgotten only with an answer: when this look fails
        # or is cancelled, the next one in turn looks for all the others.
        asked = tuple(self._asked)
        # Reading a command line can hang in the kernel with the process it belongs to; reading is safe to abandon.
        found = await to_thread.run_sync(_find, asked, abandon_on_cancel=True, limiter=self._limiter)
        for each, its_own in zip(asked, found, strict=True):
            each.found = its_own
            self._asked.pop(each, None)


def _find(asked: tuple[_Asked, ...]) -> tuple[Found, ...]:
    """One look at all processes; what it finds for each who asked."""
    arguments = {each.argument for each in asked if each.argument is not None}
    prefixes = tuple({each.prefix for each in asked if each.prefix is not None})
    carriers = _carriers(lambda argument: argument in arguments or argument.startswith(prefixes))
    by_argument: dict[bytes, list[tuple[ProcessIdentity, str]]] = {}
    for identity, carried in carriers:
        for argument in dict.fromkeys(carried):
            by_argument.setdefault(argument, []).append((identity, os.fsdecode(argument)))
    return tuple(
        _beginning_with(each.prefix, carriers) if each.argument is None else tuple(by_argument.get(each.argument, ()))
        for each in asked
    )


def _beginning_with(prefix: bytes | None, carriers: list[tuple[ProcessIdentity, list[bytes]]]) -> Found:
    wanted = prefix or b""
    firsts = (
        (identity, next((each for each in carried if each.startswith(wanted)), None)) for identity, carried in carriers
    )
    return tuple((identity, os.fsdecode(first)) for identity, first in firsts if first is not None)


def _carriers(is_wanted: Callable[[bytes], bool]) -> list[tuple[ProcessIdentity, list[bytes]]]:
    """The running processes with such arguments, by pid, and those arguments."""
    found = []
    for pid in sorted(procfs.process_ids()):
        before = procfs.read_stat(pid)
        if before is None or not before.is_running:
            continue
        carried = list(filter(is_wanted, procfs.read_arguments(pid)))
        if not carried:
            continue
        after = procfs.read_stat(pid)
        # The same start time before and after: the arguments belong to that process and to no other one of its pid.
        if after is not None and after.start_ticks == before.start_ticks:
            found.append((ProcessIdentity(pid=pid, start_ticks=before.start_ticks), carried))
    return found
