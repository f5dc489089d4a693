"""What the GPUs of a simulated machine are, and the driver and toolkit that belong to them: plain values.

`sim.world.gpu_node` has what is done to them, `sim.world.nvml` what the driver's library says of them.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB: Final = 1 << 30
FELL_OFF_THE_BUS: Final = 79
"""The XID with which a GPU is lost."""


class Health(enum.StrEnum):
    """Whether a GPU answers."""

    HEALTHY = "Healthy"
    LOST = "Lost"


@attrs.frozen(kw_only=True)
class ComputeProcess:
    """Somebody who computes on a GPU."""

    pid: int
    used_bytes: int


@attrs.frozen(kw_only=True)
class Gpu:
    """One GPU.

    Attributes:
        uuid: `GPU-` and a UUID.
        minor: of its device node, `/dev/nvidia<minor>`; neither its index in NVML nor its place on the bus.
        pci_bus_id: as NVML spells it, an 8-digit domain and upper-case hex.
        is_in_mig_mode: it can only be used in instances; it has none until `GpuNode.split` makes some.
        health: whether it answers.
        xids: the errors it has reported, oldest first.
        processes: who computes on it.
    """

    uuid: str
    minor: int
    pci_bus_id: str
    model: str = "NVIDIA A100-SXM4-40GB"
    memory_bytes: int = 40 * GIB
    is_in_mig_mode: bool = False
    health: Health = Health.HEALTHY
    xids: tuple[int, ...] = ()
    processes: tuple[ComputeProcess, ...] = ()

    @property
    def proc_bus_id(self) -> str:
        """As the kernel spells it below /proc and /sys: a 4-digit domain and lower-case hex."""
        return self.pci_bus_id[4:].lower()


@attrs.frozen(kw_only=True)
class MigInstance:
    """A MIG device: a compute instance on a GPU instance, by their ids on the GPU, and its UUID, `MIG-…`."""

    uuid: str
    gpu_instance: int
    compute_instance: int = 0

    def capabilities(self, minor: int) -> tuple[str, str]:
        """What the module calls the two things that whoever opens it needs, on the GPU with this minor."""
        of_gpu = f"gpu{minor}/gi{self.gpu_instance}"
        return f"{of_gpu}/access", f"{of_gpu}/ci{self.compute_instance}/access"


@attrs.frozen(kw_only=True)
class Driver:
    """The driver of a machine that has GPUs, as it is at the first boot.

    Attributes:
        version: of the module and of the libraries.
        root: below which its files are.
        libraries: their directory, an absolute path below the root.
        binaries: likewise.
        dev_root: below which `dev` is.
        proc_root: what /proc is.
        is_loaded: whether the module is.
        has_nodes: whether the device nodes are made; else they come late.
    """

    version: str = "580.65.06"
    root: Path = Path("/")
    libraries: Path = Path("/usr/lib64")
    binaries: Path = Path("/usr/bin")
    dev_root: Path = Path("/")
    proc_root: Path = Path("/proc")
    is_loaded: bool = True
    has_nodes: bool = True

    def below_root(self, path: Path) -> Path:
        """Where a path of the driver is on the machine."""
        return self.root / path.relative_to("/")


@attrs.frozen(kw_only=True)
class Toolkit:
    """NVIDIA's container toolkit as the operator installs it: a wrapper that needs /bin/sh, and beside it the program.

    Attributes:
        version: of `nvidia-ctk`; its behaviour is that of 1.20 whatever this says.
        directory: where it is.
        is_mounted: whether that directory is there; else it comes late.
        command_s: how long a call takes.
    """

    version: str = "1.20.0"
    directory: Path = Path("/usr/local/nvidia/toolkit")
    is_mounted: bool = True
    command_s: float = 0.030

    @property
    def wrapper(self) -> Path:
        """What needs /bin/sh."""
        return self.directory / "nvidia-ctk"

    @property
    def program(self) -> Path:
        """What needs nothing."""
        return self.directory / "nvidia-ctk.real"


def proc_files(gpus: Sequence[Gpu], version: str) -> dict[str, str]:
    """What a loaded driver of this version shows below /proc/driver/nvidia: the files by their names there."""
    files = {"params": "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"}
    files["version"] = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n"
    for gpu in gpus:
        text = f"Model: \t\t {gpu.model}\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.proc_bus_id}\n"
        files[f"gpus/{gpu.proc_bus_id}/information"] = f"{text}Device Minor: \t {gpu.minor}\n"
    return files


def some_gpus(count: int, *, minors: Sequence[int] | None = None) -> tuple[Gpu, ...]:
    """So many GPUs, in the order of NVML's index; minors go the other way round unless they are given.

    The order of the buses is a third one: the second half comes first.
    """
    chosen = tuple(minors) if minors is not None else tuple(reversed(range(count)))
    return tuple(
        Gpu(
            uuid=f"GPU-00000000-0000-4000-8000-{index:012d}",
            minor=minor,
            pci_bus_id=f"00000000:{0x3B + (index + count // 2) % count:02X}:00.0",
        )
        for index, minor in enumerate(chosen)
    )
