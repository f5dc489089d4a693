"""The WorkerAssignment as admitted: every value checked, every default filled in, every path absolute.

`actors.admission` is the only maker; nothing else turns documents into these. Source: DESIGN, "WorkerAssignment".
"""

from __future__ import annotations

import enum
from pathlib import Path

import attrs

API_VERSION = "greenroom.dev/v1alpha1"
KIND = "WorkerAssignment"
GPU_RESOURCE = "nvidia.com/gpu"


class DesiredState(enum.StrEnum):
    """What is wanted of the actor."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    TERMINATED = "Terminated"


class SandboxClass(enum.StrEnum):
    """The kind of sandbox; gVisor is the only one that is built."""

    GVISOR = "gvisor"


class SnapshotScope(enum.StrEnum):
    """What a snapshot holds."""

    FULL = "Full"
    DATA = "Data"


class OnLiveCuda(enum.StrEnum):
    """What a suspend does when a CUDA context is open."""

    REFUSE = "Refuse"
    WAIT = "Wait"
    CHECKPOINT = "Checkpoint"


class RestartPolicy(enum.StrEnum):
    """What follows when the last container ends with a failure."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"


class Egress(enum.StrEnum):
    """Whether the actor may open connections to the outside."""

    ALLOW = "Allow"
    DENY = "Deny"


class ColdStart(enum.Enum):
    """`snapshot: {from: None}`: start cold although a snapshot is there."""

    WANTED = "None"


@attrs.frozen
class SnapshotAt:
    """`snapshot: {uri: …}`: restore this snapshot."""

    uri: str


@attrs.frozen(kw_only=True)
class Suspend:
    """How to suspend. `uri` is the store that the snapshot goes to; None keeps it on the worker."""

    scope: SnapshotScope = SnapshotScope.FULL
    on_live_cuda: OnLiveCuda = OnLiveCuda.REFUSE
    uri: str | None = None


@attrs.frozen
class ExecAction:
    """Run this argv inside the container."""

    argv: tuple[str, ...]


@attrs.frozen
class SignalAction:
    """Send this signal (its name without SIG) to the container's first process."""

    name: str


@attrs.frozen(kw_only=True)
class HttpGetAction:
    """GET this path on this port of the actor."""

    path: str
    port: int


@attrs.frozen
class TcpSocketAction:
    """Connect to this port of the actor."""

    port: int


@attrs.frozen(kw_only=True)
class WakeupProbe:
    """How a container says that it serves. `timeout_s` bounds all tries together."""

    action: ExecAction | HttpGetAction | TcpSocketAction
    timeout_s: float = 30.0


@attrs.frozen(kw_only=True)
class Lifecycle:
    """Hooks around a suspend."""

    pre_suspend: ExecAction | SignalAction | None = None
    post_resume: ExecAction | SignalAction | None = None


@attrs.frozen(kw_only=True)
class Port:
    """One port of a container that the worker forwards."""

    container_port: int
    worker_port: int


@attrs.frozen(kw_only=True)
class Network:
    """The actor's network."""

    ports: tuple[Port, ...] = ()
    egress: Egress = Egress.ALLOW


@attrs.frozen(kw_only=True)
class User:
    """Numbers as the kernel takes them."""

    uid: int = 0
    gid: int = 0
    additional_gids: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Rootfs:
    """An unpacked image and what to run in it."""

    path: Path
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = "/"
    user: User = attrs.field(factory=User)
    capabilities: tuple[str, ...] | None = None
    """Capability names (CAP_…); None is the default set of container runtimes."""


@attrs.frozen
class Bundle:
    """A prepared OCI bundle directory, only read."""

    path: Path


@attrs.frozen(kw_only=True)
class Resources:
    """Amounts as exact numbers: cpu in whole milli-units rounded up, memory in bytes, devices in pieces."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    ephemeral_storage_bytes: int | None = None
    devices: tuple[tuple[str, int], ...] = ()
    """Device class and count, only counts above zero, sorted by class."""


@attrs.frozen(kw_only=True)
class VolumeMount:
    """A durable volume inside a container."""

    name: str
    mount_path: str


@attrs.frozen(kw_only=True)
class Container:
    """One application container."""

    name: str
    source: Rootfs | Bundle
    image_digest: str | None = None
    limits: Resources = attrs.field(factory=Resources)
    requests: Resources = attrs.field(factory=Resources)
    volume_mounts: tuple[VolumeMount, ...] = ()
    wakeup_probe: WakeupProbe | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs it claims."""
        return dict(self.limits.devices).get(GPU_RESOURCE, 0)


@attrs.frozen(kw_only=True)
class WorkerAssignment:
    """The wanted state of one actor on this worker, with a generation.

    Attributes:
        digest: BLAKE3 of the document's canonical content (paths absolute), to tell "same content" from other content.
    """

    uid: str
    generation: int
    desired_state: DesiredState
    containers: tuple[Container, ...]
    digest: str
    name: str = ""
    namespace: str = ""
    sandbox_class: SandboxClass = SandboxClass.GVISOR
    reservation: tuple[tuple[str, int], ...] | None = None
    snapshot: SnapshotAt | ColdStart | None = None
    suspend: Suspend = attrs.field(factory=Suspend)
    restart_policy: RestartPolicy = RestartPolicy.NEVER
    termination_grace_s: int = 30
    durable_volumes: tuple[str, ...] = ()
    lifecycle: Lifecycle = attrs.field(factory=Lifecycle)
    network: Network = attrs.field(factory=Network)
