"""The port for GPUs: the monitor, the child process that owns NVML. Everything else of a GPU is a file or a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


@attrs.frozen(kw_only=True)
class DriverPlaces:
    """Where the driver is, as this pod sees it.

    Attributes:
        dev_root: below which `dev` with the device nodes is.
        proc_root: what /proc is.
        driver_root: below which the driver's libraries and programs are.
    """

    dev_root: Path = Path("/")
    proc_root: Path = Path("/proc")
    driver_root: Path = Path("/")


class GpuMonitor(Protocol):
    """A running monitor."""

    async def receive(self) -> bytes:
        """More of what it writes (`actors.gpu.facts`), any part of a line; nothing once it has ended.

        It may never return: a monitor that hangs in the kernel is silent. Whoever waits sets the bound.
        """
        ...


class Gpus(Protocol):
    """The GPUs' own word, by way of NVML."""

    def monitor(self, places: DriverPlaces) -> AbstractAsyncContextManager[GpuMonitor]:
        """Start a monitor; leaving ends it with SIGKILL and waits for that no longer than a few seconds.

        Raises:
            OSError: it cannot be started.
        """
        ...
