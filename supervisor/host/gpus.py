"""The GPUs' own word: the monitor, started and ended as a process of ours.

Its stdout is one end of a connection. When we end, however, the other end is closed, and the monitor ends by that.
"""

from __future__ import annotations

import errno
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from supervisor.gpu_monitor.looking import HEARTBEAT_S
from supervisor.host.stream import SocketStream

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Mapping, Sequence

    from actors.ports import DriverPlaces
    from supervisor.host.child import HostChild

# One that hangs in the kernel does not even die of SIGKILL.
_END_BOUND_S: Final = 5.0
# The checkout or the directory of packages that we ourselves run from, whatever else is installed.
_PACKAGES: Final = Path(__file__).parents[2]


class Speaking(Protocol):
    """What is needed of `HostProcesses`."""

    async def spawn_speaking(self, argv: Sequence[str], *, env: Mapping[str, str]) -> tuple[HostChild, socket.socket]:
        """Start a program that tells something."""
        ...


class HostGpuMonitor:
    """The real `GpuMonitor`."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        """More of what it writes; nothing once it has ended."""
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return b""


class HostGpus:
    """The real `Gpus`.

    Args:
        processes: starts the monitor.
        program: another one than our own, which is given the same arguments and speaks as it does.
        period_s: between two of its looks.
    """

    def __init__(self, processes: Speaking, *, program: Path | None = None, period_s: float = HEARTBEAT_S) -> None:
        self._processes = processes
        self._program = program
        self._period_s = period_s
        self._undead: HostChild | None = None

    @asynccontextmanager
    async def monitor(self, places: DriverPlaces) -> AsyncIterator[HostGpuMonitor]:
        """Start a monitor; leaving ends it with SIGKILL and waits for that no longer than a few seconds.

        Raises:
            OSError: it cannot be started; EBUSY while an earlier one hangs in the kernel and does not die: another one
                would hang beside it.
        """
        if self._undead is not None and self._undead.exit is None:
            raise OSError(errno.EBUSY, f"monitor {self._undead.identity.pid} hangs in the kernel and does not die")
        child, ours = await self._processes.spawn_speaking(self._argv(places), env=_environment())
        ours.settimeout(0)
        stream = SocketStream(ours)
        try:
            yield HostGpuMonitor(stream)
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
                child.signal(signal.SIGKILL)
                with anyio.move_on_after(_END_BOUND_S):
                    await child.wait()
            self._undead = child if child.exit is None else None

    def _argv(self, places: DriverPlaces) -> list[str]:
        # Neither the working directory nor anything of the user's home comes before our own packages.
        ours = [sys.executable, "-P", "-s", "-m", "supervisor.gpu_monitor"]
        roots = [str(places.driver_root), str(places.dev_root), str(places.proc_root)]
        return [*(ours if self._program is None else [str(self._program)]), *roots, f"{self._period_s:g}"]


def _environment() -> dict[str, str]:
    # One arena: a second thread that allocates nothing of note would reserve memory of its own.
    return {"PYTHONPATH": str(_PACKAGES), "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
