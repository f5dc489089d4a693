"""A worker's metrics for who scrapes them: in Prometheus' own format, or in OpenMetrics for who asks for it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from statemachine.states import State
from supervisor.metrics import catalogue as m
from supervisor.metrics import looking
from supervisor.metrics.hearing import Counts
from supervisor.metrics.snapshot_sizes import SnapshotSizes
from supervisor.metrics.tallies import family
from supervisor.runtime import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actors.layout import StateDir
    from actors.ports import Ports
    from supervisor.health import Health
    from supervisor.metrics.tallies import Family

DISK_S: Final = 1.0
"""How long each look at the state directory may take: one that hangs must not hide the rest."""
ACTORS_S: Final = 5.0
"""How long the cgroups of all actors may take to be read; a scraper waits for 10 s by default."""
OPENMETRICS: Final = "application/openmetrics-text"
_ASKING_FOR_OPENMETRICS: Final = f"{OPENMETRICS}; version=1.0.0"


class Metrics:
    """The metrics of one worker.

    Args:
        ports: what is looked at.
        state_dir: what it has on disk.
        health: whether it is ready, and who it is.

    Attributes:
        counts: hears what happens.
        connections: says how many come for the pages.
    """

    def __init__(self, ports: Ports, state_dir: StateDir, health: Health) -> None:
        self.counts = Counts()
        self.connections: Callable[[], int] = lambda: 0
        self._ports, self._state_dir, self._health = ports, state_dir, health
        self._sizes = SnapshotSizes(ports.files)
        self._started_s = ports.wall.now_s()

    async def text(self, accept: str) -> tuple[bytes, str]:
        """All of it as text, and what that is; `accept` is what the client asks for."""
        from supervisor.metrics.text import as_text  # noqa: PLC0415 - as its module says

        families = [*self.counts.families(), *self._seen(), *await self._asked()]
        return as_text(families, _ASKING_FOR_OPENMETRICS if OPENMETRICS in accept else "")

    def _seen(self) -> Iterator[Family]:
        worker = self._health.worker
        yield family(m.READY, [((), int(not self._health.obstacles()))])
        runsc = "" if worker is None else worker.runtime.version.text
        yield family(m.BUILD, [((VERSION, runsc), 1)])
        yield family(m.STARTED, [((), self._started_s)])
        yield family(m.CONNECTIONS, [((), self.connections())])
        if worker is not None:
            yield from looking.of_worker(worker)

    async def _asked(self) -> list[Family]:
        """What the kernel and the disk are asked for; what they do not tell in time is left out."""
        found: list[Family] = []
        asked = ((DISK_S, self._process), (DISK_S, self._room), (DISK_S, self._snapshots), (ACTORS_S, self._actors))
        for ask_s, ask in asked:
            with anyio.move_on_after(ask_s), suppress(OSError):
                found += await ask()
        return found

    async def _process(self) -> Iterable[Family]:
        return looking.of_process(await self._ports.processes.own_usage())

    async def _room(self) -> Iterable[Family]:
        free = await self._ports.files.free_bytes(self._state_dir.root)
        return [family(m.STATE_FREE, [((), free)])]

    async def _snapshots(self) -> Iterable[Family]:
        worker = self._health.worker
        if worker is None:
            return ()
        sizes = await self._sizes.known(self._state_dir, worker.lives)
        return [family(m.SNAPSHOTS, [((), len(sizes))]), family(m.SNAPSHOT_BYTES, [((), sum(sizes))])]

    async def _actors(self) -> Iterable[Family]:
        worker = self._health.worker
        if worker is None or not worker.settings.metrics_per_actor:
            return ()
        uids = [life.uid for life in worker.lives if life.actor.state is not State.TERMINATED]
        return looking.of_actors(await worker.usages.of_all(uids))
