"""What a worker is started with. Flags, environment, a file and defaults meet in the CLI; here are only values."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from actors.layout import CONTROL_SOCKET, HTTP_SOCKET
from actors.ports import CGROUP_ROOT, DriverPlaces
from actors.runsc.nvproxy import Nvproxy
from statemachine.actor import OnDrain

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import TcpAddress

MAX_ACTORS: Final = 1000
"""How many actors a worker takes on where nobody says."""


GPU_SILENCE_S: Final = 20.0
"""How long a GPU monitor may be silent: ours tells something every 3 s, and may have to initialise anew in between."""


class CdiSource(enum.StrEnum):
    """Where the CDI spec of the pod's GPUs comes from."""

    POD = "pod"
    """Greenroom has it generated, in the pod."""
    HOST = "host"
    """It was written by somebody else, into one of CDI's directories."""


class CgroupsWanted(enum.StrEnum):
    """Whether a worker divides its cgroup among its actors."""

    AUTO = "auto"
    """Where it can."""
    OFF = "off"
    """Never."""
    REQUIRE = "require"
    """It does not start where it cannot enforce every limit."""


class ContainerOutput(enum.StrEnum):
    """Where containers' lines go."""

    FILE = "file"
    """Into the containers' logs."""
    STDOUT = "stdout"
    """There, and labelled to the worker's stdout."""


class Backend(enum.StrEnum):
    """The event loop."""

    ASYNCIO = "asyncio"
    TRIO = "trio"


@attrs.frozen(kw_only=True)
class Collector:
    """Where spans go.

    Attributes:
        url: takes OTLP's traces over HTTP: the whole address, with its path.
        is_asked_for: whether the worker was told so itself, and not only the environment of its pod says it.
    """

    url: str
    is_asked_for: bool


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
        drain_timeout_s: from the signal to the end of everything: suspends, stops, uploads.
        nvproxy: whether gVisor passes calls on to the driver.
        places: where the driver is.
        toolkit_dir: where the NVIDIA container toolkit is; None looks where it usually is.
        cdi_source: where the CDI spec comes from.
        gpu_monitor: the program that tells of the GPUs, instead of our own; it speaks version 1 of `actors.gpu.facts`.
        gpu_silence_s: how long a monitor that has spoken may be silent before it is replaced.
        cgroups: whether actors get cgroups of their own.
        cgroup_root: where cgroup v2 is mounted.
        container_output: where containers' lines go.
        http_listen: where health and metrics are served besides in the run directory; None is nowhere.
        metrics_per_actor: whether the metrics also tell what each actor uses, by its uid.
        collector: where spans go; None makes none.
        control_uids: who may ask at the control socket, besides root.
    """

    state_dir: Path
    run_dir: Path
    assignments: Path | None
    runsc: Path
    platform: str = "systrap"
    network: str = "none"
    snapshot_store: str | None = None
    max_actors: int = MAX_ACTORS
    on_drain: OnDrain = OnDrain.SUSPEND
    drain_timeout_s: float = 120.0
    nvproxy: Nvproxy = Nvproxy.AUTO
    places: DriverPlaces = attrs.field(factory=DriverPlaces)
    toolkit_dir: Path | None = None
    cdi_source: CdiSource = CdiSource.POD
    gpu_monitor: Path | None = None
    gpu_silence_s: float = GPU_SILENCE_S
    cgroups: CgroupsWanted = CgroupsWanted.AUTO
    cgroup_root: Path = CGROUP_ROOT
    container_output: ContainerOutput = ContainerOutput.FILE
    http_listen: TcpAddress | None = None
    metrics_per_actor: bool = False
    collector: Collector | None = None
    control_uids: frozenset[int] = frozenset()

    @property
    def control_socket(self) -> Path:
        """Where clients and server meet."""
        return self.run_dir / CONTROL_SOCKET

    @property
    def http_socket(self) -> Path:
        """Where health and metrics are served, whether or not at an address as well."""
        return self.run_dir / HTTP_SOCKET
