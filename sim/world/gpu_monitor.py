"""The simulated GPU monitor: it looks as the real one does (`supervisor.gpu_monitor.looking`), at the model of NVML.

It has no task of its own: what it tells is looked up when somebody receives it. So there is no timer but that of
whoever receives, and a call of NVML that hangs is a monitor that says nothing more. A fleet that stands still for a
month would cost a look of each worker every three seconds: `tells_for_s` ends them while there is nothing new to see.
"""

from __future__ import annotations

import math
import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio import lowlevel

from actors.gpu.facts import encode
from sim.world.nvml import NvmlCrashes, NvmlHangs
from sim.world.nvml_library import SimLibrary
from supervisor.gpu_monitor.looking import HEARTBEAT_S, Looking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from actors.gpu.facts import Fact
    from actors.ports import DriverPlaces
    from sim.world.gpu_node import GpuNode
    from sim.world.process_table import ProcessTable, SimProcess

COMMAND_LINE: Final = ("python3", "-m", "supervisor.gpu_monitor")


class SimGpuMonitor:
    """The simulated `GpuMonitor`."""

    def __init__(
        self,
        node: GpuNode,
        table: ProcessTable,
        process: SimProcess,
        places: DriverPlaces,
        *,
        period_s: float,
        tells_for_s: float,
        tells_at_first_for_s: float,
    ) -> None:
        self._table = table
        self._process = process
        self._period_s = period_s
        self._tells_for_s = tells_for_s
        self._tells_until_s = anyio.current_time() + tells_at_first_for_s
        self._library = SimLibrary(node, places, self._wake)
        self._looking = Looking(self._library)
        self._look_at_s = anyio.current_time()
        self._hangs = False
        self._stir = anyio.Event()
        process.ended.append(self._wake)
        process.ended.append(lambda: node.stirred.remove(self._stirred))
        node.stirred.append(self._stirred)

    async def receive(self) -> bytes:
        """What it tells next; nothing once it has ended."""
        await lowlevel.checkpoint()
        while self._process.is_running:
            self._stir = anyio.Event()
            if not self._hangs and (told := self._told_now()):
                return told
            if self._process.is_running:
                with anyio.CancelScope(deadline=float("inf") if self._hangs else self._look_at_s):
                    await self._stir.wait()
        return b""

    def _told_now(self) -> bytes:
        """What it has to tell at this moment, as far as it comes with it."""
        told = bytearray()
        try:
            for fact in self._facts():
                told += encode(fact)
        except NvmlHangs:
            self._hangs = True
        except NvmlCrashes:
            self._table.end(self._process, -signal.SIGSEGV)
        return bytes(told)

    def _facts(self) -> Iterator[Fact]:
        if self._looking.is_over:
            self._table.end(self._process, 0)
            return
        has_heard = False
        while (event := self._library.next_xid()) is not None:
            has_heard = True
            yield from self._looking.hear(*event)
        if has_heard or anyio.current_time() >= self._look_at_s:
            yield from self._looking.look()
            now_s = anyio.current_time()
            self._look_at_s = now_s + self._period_s if now_s < self._tells_until_s else math.inf

    def _stirred(self) -> None:
        """Something has happened to the GPUs: it is seen at the next look, which there will be."""
        now_s = anyio.current_time()
        self._tells_until_s = now_s + self._tells_for_s
        if self._look_at_s > now_s + self._period_s:
            self._look_at_s = now_s + self._period_s
            self._wake()

    def _wake(self) -> None:
        self._stir.set()


class SimGpus:
    """The simulated `Gpus` of one life of the supervisor.

    Args:
        node: the machine's GPUs.
        table: its processes.
        parent: the supervisor's pid.
        period_s: between two looks of a monitor.
        tells_for_s: how long it goes on looking after something has happened to the GPUs, which is also why one takes
            the place of another.
    """

    def __init__(
        self,
        node: GpuNode,
        table: ProcessTable,
        *,
        parent: int,
        period_s: float = HEARTBEAT_S,
        tells_for_s: float = math.inf,
    ) -> None:
        self._node = node
        self._table = table
        self._parent = parent
        self._period_s = period_s
        self._tells_for_s = tells_for_s
        self._tells_at_first_for_s = tells_for_s if math.isinf(tells_for_s) else 0.0

    @asynccontextmanager
    async def monitor(self, places: DriverPlaces) -> AsyncIterator[SimGpuMonitor]:
        """Start a monitor; leaving ends it."""
        await lowlevel.checkpoint()
        process = self._table.spawn(COMMAND_LINE, parent=self._parent)
        process.is_owned = True
        end = partial(self._table.signal, process, signal.SIGKILL)
        supervisor = self._table.get(self._parent)
        if supervisor is not None:
            supervisor.ended.append(end)  # with which the other end of its stdout is closed
        at_first_s, self._tells_at_first_for_s = self._tells_at_first_for_s, self._tells_for_s
        try:
            yield SimGpuMonitor(
                self._node,
                self._table,
                process,
                places,
                period_s=self._period_s,
                tells_for_s=self._tells_for_s,
                tells_at_first_for_s=at_first_s,
            )
        finally:
            end()
            self._table.release(process)
            if supervisor is not None:
                supervisor.ended.remove(end)
