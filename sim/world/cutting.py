"""Calls that are cut in the middle: between two parts of a change of files or a store, or in a wait of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from sim.faults import Cut, Halfway
from sim.world.errors import error_of
from sim.world.execution import Scissors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.planting import Planted
    from sim.world.files import SimFiles
    from sim.world.processes import SimProcesses
    from sim.world.stores import SimStores

_Result = TypeVar("_Result")


@attrs.define(eq=False)
class Cutting:
    """One call that is to be cut.

    Attributes:
        planted: by what.
        number: the call's.
        has_cut: whether that has happened.
    """

    planted: Planted
    number: int
    has_cut: bool = False


class Cuts:
    """What is being cut in one life of the supervisor.

    Args:
        files, stores: they say when a part of a call is done.
        processes: they say when a command waits.
        kill: ends this life at once.
    """

    def __init__(self, files: SimFiles, stores: SimStores, processes: SimProcesses, kill: Callable[[], None]) -> None:
        self._in_parts: dict[str, SimFiles | SimStores] = {"files": files, "stores": stores}
        self._processes = processes
        self._kill = kill
        self._cutting: dict[trio.lowlevel.Task, Cutting] = {}

    async def cut(
        self, planted: Planted, port: str, act: Callable[..., Awaitable[_Result]], /, *args: Any, **options: Any
    ) -> _Result:
        """Make a call that is cut where the fault says, if it comes there.

        Raises:
            ValueError: a call of this port cannot be cut so.
        """
        cutting = Cutting(planted, planted.fired[-1])
        try:
            match planted.fault.what:
                case Halfway() if port in self._in_parts:
                    return await self._in_the_middle(cutting, port, act, *args, **options)
                case Cut(nth) if port == "processes":
                    return await self._in_a_wait(cutting, nth, act, *args, **options)
                case what:
                    raise ValueError(f"a call of {port} cannot meet {what}")
        finally:
            if not cutting.has_cut:
                planted.missed(cutting.number)

    async def _in_the_middle(
        self, cutting: Cutting, port: str, act: Callable[..., Awaitable[_Result]], /, *args: Any, **options: Any
    ) -> _Result:
        task = trio.lowlevel.current_task()
        self._cutting[task] = cutting
        self._in_parts[port].at = self._between
        try:
            return await act(*args, **options)
        finally:
            del self._cutting[task]
            if not self._cutting:
                for each in self._in_parts.values():
                    each.at = None

    async def _between(self, point: str) -> None:
        cutting = self._cutting.get(trio.lowlevel.current_task())
        if cutting is None or cutting.has_cut:
            return
        part, halfway = point.partition(": ")[2], cutting.planted.fault.what
        cutting.planted.parts.setdefault(cutting.number, []).append(part)
        if not isinstance(halfway, Halfway) or part != halfway.at:
            return
        cutting.has_cut = True
        if halfway.error is not None:
            raise error_of(halfway.error)
        self._kill()

    async def _in_a_wait(
        self, cutting: Cutting, nth: int, act: Callable[..., Awaitable[_Result]], /, *args: Any, **options: Any
    ) -> _Result:
        task = trio.lowlevel.current_task()
        scissors = self._processes.scissors[task] = Scissors(nth)
        try:
            return await act(*args, **options)
        finally:
            del self._processes.scissors[task]
            cutting.planted.parts[cutting.number] = [str(each) for each in range(1, scissors.waits + 1)]
            cutting.has_cut = scissors.has_cut
