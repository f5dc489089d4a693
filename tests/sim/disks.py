"""A simulated disk to be broken, and who works on it until then."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from sim.world import scenery
from sim.world.disk import SimDisk
from sim.world.files import SimFiles

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path("/state")


def new_disk() -> SimDisk:
    ticks = itertools.count(1)
    disk = SimDisk(now_ns=lambda: next(ticks))
    scenery.put_directory(disk, ROOT)
    return disk


def new_files(disk: SimDisk, at: Any = None) -> SimFiles:
    return SimFiles(disk, roots=[ROOT], owner=object(), at=at)


def run(work: Callable[[SimFiles], Any], disk: SimDisk, at: Any = None) -> None:
    async def go() -> None:
        await work(new_files(disk, at))

    anyio.run(go, backend="trio")
