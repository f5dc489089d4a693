"""The GPUs' own word to one life of the supervisor, each call through its gate."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from actors.ports import DriverPlaces, GpuMonitor, Gpus
    from sim.world.calls import Gate


class GatedGpus:
    """`Gpus` through a gate."""

    def __init__(self, gate: Gate, inner: Gpus) -> None:
        self._gate = gate
        self._inner = inner

    @asynccontextmanager
    async def monitor(self, places: DriverPlaces) -> AsyncIterator[GpuMonitor]:
        """Start a monitor."""
        argument = str(places.driver_root)
        async with self._gate.opened("gpus", "monitor", argument, self._inner.monitor(places)) as monitor:
            yield GatedGpuMonitor(self._gate, monitor, argument)


class GatedGpuMonitor:
    """`GpuMonitor` through a gate."""

    def __init__(self, gate: Gate, inner: GpuMonitor, argument: str) -> None:
        self._gate = gate
        self._inner = inner
        self._argument = argument

    async def receive(self) -> bytes:
        """More of what it writes."""
        return await self._gate.cross("gpus", "receive", self._argument, self._inner.receive)
