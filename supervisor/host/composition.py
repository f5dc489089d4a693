"""All real ports, put together."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from actors.ports import CGROUP_ROOT, Ports
from supervisor.host.background import open_background
from supervisor.host.beneath import Beneath
from supervisor.host.cgroups import HostCgroups
from supervisor.host.files import HostFiles
from supervisor.host.gpus import HostGpus
from supervisor.host.net import HostNet
from supervisor.host.processes import HostProcesses
from supervisor.host.reaper import Reaper
from supervisor.host.signals import HostSignals
from supervisor.host.spawning import close_on_exec
from supervisor.host.stores import HostStores
from supervisor.host.wall import HostWall
from supervisor.host.watch import HostWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence
    from pathlib import Path


@asynccontextmanager
async def open_host_ports(
    *,
    roots: Sequence[Path],
    gpu_monitor: Path | None = None,
    cgroup_root: Path = CGROUP_ROOT,
    ignored_afterwards: Collection[int] = (),
) -> AsyncIterator[Ports]:
    """The real ports, for the main thread. While they are open we are a subreaper, and strangers' zombies are reaped.

    When it is left, no task, thread or descriptor of the ports remains; owned processes are given up and live on.

    Args:
        roots: the directories below which alone files are written: the state directory and the run directory.
        gpu_monitor: the program that tells of the GPUs; None is our own.
        cgroup_root: where cgroup v2 is mounted.
        ignored_afterwards: signals that are ignored once nobody receives them any more, see `HostSignals`.

    Raises:
        RuntimeError: they are open already in this process; one reaper would take the other's children.
    """
    close_on_exec()
    signals = HostSignals(ignored_afterwards=ignored_afterwards)
    reaper = Reaper(signals)
    # Owned processes are given up first, so that the reaper's last look finds what has ended by then.
    stores = HostStores(Beneath(roots), os.environ)
    async with stores.opened(), signals.open(), reaper.open(), open_background() as waits:
        processes = HostProcesses(reaper, waits)
        yield Ports(
            processes=processes,
            files=HostFiles(roots=roots),
            watch=HostWatch(),
            net=HostNet(),
            signals=signals,
            wall=HostWall(),
            gpus=HostGpus(processes, program=gpu_monitor),
            stores=stores,
            cgroups=HostCgroups(mount=cgroup_root),
        )
