"""What a mock GPU node consists of, as plain values: its files, symlinks and device nodes, by path.

DIR/mock-node.json            the state, which scripts what happens (sim.mock.state)
DIR/dev/nvidia…               device nodes with the driver's numbers; DIR is the --dev-root
DIR/driver/usr/…              the driver's libraries and programs; DIR/driver is the --driver-root
DIR/proc/driver/nvidia/…      what a loaded driver shows
DIR/monitor                   a GPU monitor that asks no NVML, for `--gpu-monitor`
DIR/toolkit/nvidia-ctk        the simulated nvidia-ctk, where the real one is not; DIR/toolkit is the --toolkit-dir
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from sim.mock.shared_library import shared_library
from sim.world.gpus import proc_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.mock.state import NodeState

STATE_FILE: Final = "mock-node.json"
BUILD: Final = ".build"
TOOLKIT: Final = "toolkit"
MONITOR: Final = "monitor"
OWN_NAMES: Final = frozenset({STATE_FILE, BUILD, TOOLKIT, MONITOR, "dev", "driver", "proc"})
"""What may be in the directory: one with anything else in it is somebody's."""

MAJOR: Final = 195
CONTROL_MINOR: Final = 255
NODE_MODE: Final = 0o666
LIBRARY_MODE: Final = 0o755
PROC_MODE: Final = 0o444
PROC_NVIDIA: Final = Path("proc/driver/nvidia")
LIBRARIES: Final = Path("driver/usr/lib64")
_BINARIES: Final = Path("driver/usr/bin")

_SONAMES: Final[Mapping[str, str]] = MappingProxyType({
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvidia-cfg": "libnvidia-cfg.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
})  # fmt: skip
"""The SONAMEs of the libraries as drivers of the 5xx branches have them: it does not always end in 1."""
_DEVELOPMENT_LINKS: Final[Mapping[str, str]] = MappingProxyType(
    {"libcuda.so": "libcuda.so.1", "libnvidia-ml.so": "libnvidia-ml.so.1"}
)
NVML: Final = "libnvidia-ml"
_NVIDIA_SMI: Final = "#!/bin/sh\necho 'NVIDIA-SMI of a mock GPU node, driver {version}: there is no GPU'\n"


@attrs.frozen(kw_only=True)
class MockNode:
    """A mock node.

    Attributes:
        directory: where it is, an absolute path.
        version: of its driver's libraries.
        machine: its architecture, as `uname -m` names it.
        uvm_major: the number that the kernel gave the driver's second module.
        state: how it is at first.
    """

    directory: Path
    version: str
    machine: str
    uvm_major: int
    state: NodeState

    @property
    def nvml(self) -> Path:
        """The library that is compiled, where that can be."""
        return self.directory / LIBRARIES / f"{NVML}.so.{self.version}"

    def devices(self) -> dict[Path, tuple[int, int]]:
        """The device nodes and their numbers; the first one is the driver's own."""
        numbers = {"nvidiactl": (MAJOR, CONTROL_MINOR)}
        numbers |= {f"nvidia{gpu.minor}": (MAJOR, gpu.minor) for gpu in self.state.gpus}
        numbers |= {"nvidia-uvm": (self.uvm_major, 0), "nvidia-uvm-tools": (self.uvm_major, 1)}
        return {self.directory / "dev" / name: device for name, device in numbers.items()}

    def empty_nvml(self) -> bytes:
        """A library in its place that answers nothing."""
        return shared_library(_SONAMES[NVML], self.machine)

    def driver_files(self) -> dict[Path, bytes]:
        """The driver's files but NVML, all of which everybody may execute."""
        files = {
            LIBRARIES / f"{name}.so.{self.version}": shared_library(soname, self.machine)
            for name, soname in _SONAMES.items()
            if name != NVML
        }
        files[_BINARIES / "nvidia-smi"] = _NVIDIA_SMI.format(version=self.version).encode()
        return {self.directory / path: data for path, data in files.items()}

    def links(self) -> dict[Path, str]:
        """The symlinks that ldconfig and the driver's installer make."""
        targets = {soname: f"{name}.so.{self.version}" for name, soname in _SONAMES.items()} | dict(_DEVELOPMENT_LINKS)
        return {self.directory / LIBRARIES / link: target for link, target in targets.items()}

    def proc_files(self) -> dict[Path, bytes]:
        """What /proc shows: nothing while no module is loaded."""
        return proc_paths(self.directory, self.state)


def proc_paths(directory: Path, state: NodeState) -> dict[Path, bytes]:
    """What /proc shows on a mock node in this state."""
    if state.loaded_version is None:
        return {}
    files = proc_files(state.gpus, state.loaded_version)
    return {directory / PROC_NVIDIA / name: text.encode() for name, text in files.items()}
