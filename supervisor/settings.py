"""What a worker is started with. Flags, environment, a file and defaults meet in the CLI; here are only values."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

from actors.layout import CONTROL_SOCKET
from actors.ports import DriverPlaces
from actors.runsc.nvproxy import Nvproxy
from statemachine.actor import OnDrain

if TYPE_CHECKING:
    from pathlib import Path


class CdiSource(enum.StrEnum):
    """Where the CDI spec of the pod's GPUs comes from."""

    POD = "pod"
    """Greenroom has it generated, in the pod."""
    HOST = "host"
    """It was written by somebody else, into one of CDI's directories."""


class Backend(enum.StrEnum):
    """The event loop."""

    ASYNCIO = "asyncio"
    TRIO = "trio"


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of one worker.

    Attributes:
        state_dir: what outlives the process.
        run_dir: the control socket.
        assignments: the watched directory; None watches none.
        runsc: the runsc executable.
        platform: gVisor's platform.
        network: gVisor's network.
        snapshot_store: URI of the store for the snapshots of actors whose documents name none; None keeps them here.
        max_actors: how many actors that have not ended may be here.
        on_drain: what a shutdown does to running actors.
        drain_timeout_s: how long a shutdown may take before the rest is ended at once.
        nvproxy: whether gVisor passes calls on to the driver.
        places: where the driver is.
        toolkit_dir: where the NVIDIA container toolkit is; None looks where it usually is.
        cdi_source: where the CDI spec comes from.
        gpu_monitor: the program that tells of the GPUs, instead of our own; it speaks version 1 of `actors.gpu.facts`.
    """

    state_dir: Path
    run_dir: Path
    assignments: Path | None
    runsc: Path
    platform: str = "systrap"
    network: str = "none"
    snapshot_store: str | None = None
    max_actors: int = 1000
    on_drain: OnDrain = OnDrain.STOP
    drain_timeout_s: float = 120.0
    nvproxy: Nvproxy = Nvproxy.AUTO
    places: DriverPlaces = attrs.field(factory=DriverPlaces)
    toolkit_dir: Path | None = None
    cdi_source: CdiSource = CdiSource.POD
    gpu_monitor: Path | None = None

    @property
    def control_socket(self) -> Path:
        """Where clients and server meet."""
        return self.run_dir / CONTROL_SOCKET
