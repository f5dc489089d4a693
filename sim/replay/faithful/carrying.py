"""The way between the workers of a fleet and their snapshot store: requests that take time, and a bandwidth for all.

What a store holds here are the few bytes of the model's snapshots; what is carried are as many as the config says.
"""

from __future__ import annotations

import errno
import math
from typing import TYPE_CHECKING, Final

import trio

from actors.ports import StoreError
from sim.fleet.bandwidth import Bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sim.fleet.config import FleetConfig

_MAIN: Final = "checkpoint.img"
"""The file of a snapshot that stands for all of its bytes."""


class Way:
    """The way to one store, for all workers."""

    def __init__(self, config: FleetConfig) -> None:
        self._bandwidth: Bandwidth[trio.Event] = Bandwidth(
            bytes_per_s=config.store.bytes_per_s, worker_bytes_per_s=config.store.worker_bytes_per_s
        )
        self._sleep = trio.CancelScope()
        self._ways_down = 0

    @property
    def is_down(self) -> bool:
        """Whether no request is answered."""
        return self._ways_down > 0

    async def down(self, for_s: float) -> None:
        """Let no request be answered for so long; what is being carried stands still."""
        self._ways_down += 1
        self._stop_or_go()
        await trio.sleep(for_s)
        self._ways_down -= 1
        self._stop_or_go()

    def _stop_or_go(self) -> None:
        self._bandwidth.pause(trio.current_time(), paused=self.is_down)
        self._sleep.cancel()

    async def keep(self) -> None:
        """Let transfers end when their time has come, for ever."""
        while True:
            found = self._bandwidth.next_end(trio.current_time())
            with trio.CancelScope(deadline=math.inf if found is None else found[0]) as self._sleep:
                await trio.sleep_forever()
            if found is not None and self._sleep.deadline <= trio.current_time():
                self._bandwidth.drop(found[1], trio.current_time())
                found[1].set()

    async def carry(self, worker: str, size_bytes: float) -> None:
        """Wait until so many bytes have gone."""
        done = trio.Event()
        self._bandwidth.begin(done, worker, size_bytes, trio.current_time())
        self._sleep.cancel()
        try:
            await done.wait()
        finally:
            self._bandwidth.drop(done, trio.current_time())
            self._sleep.cancel()


class Carrier:
    """What the requests of one worker wait for.

    Args:
        worker: its name.
        way: the fleet's.
        request_s: how long the requests for one snapshot take by themselves.
        size_of: how many bytes a snapshot of an actor has, by the actor's uid.
    """

    def __init__(self, worker: str, way: Way, request_s: Callable[[], float], size_of: Callable[[str], float]) -> None:
        self._worker = worker
        self._way = way
        self._request_s = request_s
        self._size_of = size_of

    async def carry(self, key: str, path: Path | None, _size_bytes: int) -> None:
        """Wait for one request; the config's time for them all is that of the one with the snapshot's main file.

        Raises:
            StoreError: the store is down.
        """
        is_main = path is not None and path.name.startswith(_MAIN)
        if is_main:
            await trio.sleep(self._request_s())
        if self._way.is_down:
            raise StoreError(errno.EHOSTUNREACH, "the store does not answer", key)
        if path is not None and is_main:
            await self._way.carry(self._worker, self._size_of(path.parts[-4]))
