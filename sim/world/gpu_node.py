"""A simulated machine that has GPUs: their nodes, the driver's files, what /proc says, and what happens to all that.

    world.gpus.lose(3)
    world.gpus.upgrade_driver("580.105.08")

GPUs are named by their minor, as their nodes are. What the machine has at first is in `Machine`; one without GPUs has
nothing of all this on its disk.
"""

from __future__ import annotations

import errno
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from sim.world import scenery
from sim.world.errors import kernel_error
from sim.world.gpus import FELL_OFF_THE_BUS, Health, proc_files
from sim.world.nodes import Special, SpecialNode
from sim.world.nvml import Nvml, NvmlFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.world.disk import SimDisk
    from sim.world.gpus import ComputeProcess, Driver, Gpu, MigInstance, Toolkit
    from sim.world.nvml import Return, Symbol, Trouble

_MAJOR: Final = 195
_CONTROL_MINOR: Final = 255
_UVM_MAJORS: Final = range(384, 512)
"""Where the kernel takes the numbers from that drivers do not fix."""
_CAPS_MAJOR: Final = 234
_DRM_MAJOR: Final = 226
_NODE_MODE: Final = 0o666
_ELF: Final = b"\x7fELF "
_LIBRARY: Final = "libnvidia-ml.so.1"
_NAMES: Final = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
_LINKS: Final = {
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libcuda.so.1": "libcuda.so.{version}",
    "libnvidia-ml.so.1": "libnvidia-ml.so.{version}",
    "libnvidia-ptxjitcompiler.so.1": "libnvidia-ptxjitcompiler.so.{version}",
}
_MOUNTS: Final = "22 1 0:21 / {proc} rw,nosuid,nodev,noexec,relatime - proc proc rw\n"
_COVER: Final = "50 22 0:48 / {proc}/driver/nvidia rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=555\n"


class GpuNode:
    """What there is of GPUs on a simulated machine, and what a test does to it.

    Attributes:
        disk: the machine's.
        driver: as it was at first.
        toolkit: as it is now.
        loaded_version: of the driver's module; None while there is none.
        nvml_faults: what NVML's functions do instead of what they should.
        listeners: are called with the minor of a GPU and the XID that it reports.
        stirred: are called whenever something has happened to GPUs, nodes or driver that a look may see.
    """

    def __init__(self, disk: SimDisk, gpus: Sequence[Gpu], *, driver: Driver, toolkit: Toolkit) -> None:
        self.driver = driver
        self.toolkit = toolkit
        self.loaded_version: str | None = None
        self.nvml_faults: list[NvmlFault] = []
        self.listeners: list[Callable[[int, int], None]] = []
        self.stirred: list[Callable[[], None]] = []
        self.disk = disk
        self._gpus = {gpu.minor: gpu for gpu in gpus}
        self._instances: dict[int, tuple[MigInstance, ...]] = {}
        if len(self._gpus) != len(gpus):
            raise ValueError("two GPUs have one minor")
        self._installed_version = driver.version
        self._is_loaded = driver.is_loaded
        self._has_nodes = driver.has_nodes
        self._may_open_devices = True
        self._boots = 0
        if gpus:
            self._furnish()

    def boot(self) -> None:
        """Begin a boot: the installed driver is loaded, and the nodes are made, if either was before."""
        self.listeners.clear()
        self.stirred.clear()
        if not self._gpus:
            return
        self._boots += 1
        self._instances.clear()  # the mode outlives a boot, instances do not
        self._may_open_devices = True
        self.loaded_version = self._installed_version if self._is_loaded else None
        self._write_proc()
        if self._has_nodes:
            self.make_nodes()

    # ---- what can be seen of it

    @property
    def library(self) -> Path:
        """The NVML that the driver brings."""
        return self.driver.below_root(self.driver.libraries) / _LIBRARY

    @property
    def dev(self) -> Path:
        """Where device nodes are."""
        return self.driver.dev_root / "dev"

    @property
    def has_driver(self) -> bool:
        """Whether /dev/nvidiactl can be opened, which is what runsc needs."""
        return self.loaded_version is not None and self.has_control_node() and self._may_open_devices

    def load_nvml(self, library: Path | None = None) -> Nvml:
        """NVML for one more process; the driver's, if it is not told which."""
        return Nvml(self, library or self.library)

    def gpu(self, minor: int) -> Gpu:
        """How a GPU is now.

        Raises:
            KeyError: there is none with this minor.
        """
        return self._gpus[minor]

    def instances(self, minor: int) -> tuple[MigInstance, ...]:
        """The MIG devices of a GPU, in the order of their index."""
        return self._instances.get(minor, ())

    def visible(self) -> tuple[Gpu, ...]:
        """The GPUs whose device nodes are there, in the order of their index."""
        return tuple(gpu for gpu in self._gpus.values() if self._is_device(f"nvidia{gpu.minor}"))

    def has_control_node(self) -> bool:
        """Whether /dev/nvidiactl is there."""
        return self._is_device("nvidiactl")

    def may_open_devices(self) -> bool:
        """Whether the device cgroup lets anybody in."""
        return self._may_open_devices

    def library_version(self, library: Path) -> str | None:
        """The version of an NVML, from the name of its file; None when nothing there can be loaded."""
        try:
            node = self.disk.find_regular(library)
        except OSError:
            return None
        _, _, version = node.name.partition(".so.")
        return version if bytes(node.content[: len(_ELF)]) == _ELF else None

    def names(self, directory: Path) -> frozenset[str]:
        """What is in a directory; nothing where there is none."""
        try:
            return frozenset(self.disk.find_directory(directory).entries)
        except OSError:
            return frozenset()

    def offers(self, path: str) -> bool:
        """Whether a path is one of the toolkit's programs, which can be executed now.

        Raises:
            OSError: it is, and it cannot: as execve(2) says.
        """
        if not self._gpus or path not in {str(self.toolkit.wrapper), str(self.toolkit.program)}:
            return False
        if not self.disk.find_regular(Path(path)).mode & 0o111:
            raise kernel_error(errno.EACCES, path)
        if path == str(self.toolkit.wrapper):
            self.disk.find_regular(Path("/bin/sh"))
        return True

    # ---- what happens to GPUs

    def lose(self, minor: int, *, xid: int = FELL_OFF_THE_BUS) -> None:
        """A GPU falls off the bus: it says so once, and then answers nothing."""
        self.report(minor, xid)
        self._change(minor, health=Health.LOST)

    def recover(self, minor: int) -> None:
        """A lost GPU is back, with nobody on it."""
        self._change(minor, health=Health.HEALTHY, processes=())

    def report(self, minor: int, xid: int) -> None:
        """A GPU reports an error; whether it goes on is another thing."""
        self._change(minor, xids=(*self.gpu(minor).xids, xid))
        for tell in tuple(self.listeners):
            tell(minor, xid)

    def occupy(self, minor: int, *processes: ComputeProcess) -> None:
        """From now on these processes compute on a GPU, and no others."""
        self._change(minor, processes=processes)

    def split(self, minor: int, *instances: MigInstance) -> None:
        """A GPU is put into MIG mode and split into these instances, and the nodes to open them with are made."""
        self._change(minor, is_in_mig_mode=True)
        self._instances[minor] = instances
        names = [name for at, split in self._instances.items() for each in split for name in each.capabilities(at)]
        # 1 and 2 are those of configuring and monitoring.
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names), 3)}
        text = "".join(f"{name} {number}\n" for name, number in {"config": 1, "monitor": 2, **numbers}.items())
        scenery.put_file(self.disk, self.driver.proc_root / "driver/nvidia-caps/mig-minors", text.encode(), mode=0o444)
        for number in numbers.values():
            self._put_node(f"nvidia-caps/nvidia-cap{number}", _CAPS_MAJOR, number)

    def make_drm_nodes(self, minor: int, number: int) -> None:
        """The kernel's graphics nodes of a GPU come: `card<number>` and its render node."""
        for name in (f"card{number}", f"renderD{128 + number}"):
            scenery.put_directory(self.disk, Path("/sys/bus/pci/devices") / self.gpu(minor).proc_bus_id / "drm" / name)
            self._put_node(f"dri/{name}", _DRM_MAJOR, number + (128 if name.startswith("r") else 0))

    # ---- what happens to nodes

    def make_nodes(self, *minors: int) -> None:
        """Make the nodes of these GPUs, or of all, and those of the driver."""
        self._has_nodes = True
        self._put_node("nvidiactl", _MAJOR, _CONTROL_MINOR)
        for minor in minors or self._gpus:
            self._put_node(f"nvidia{minor}", _MAJOR, self.gpu(minor).minor)
        # No driver fixes this number: it is another one after the next boot.
        major = _UVM_MAJORS[-self._boots % len(_UVM_MAJORS)]
        self._put_node("nvidia-uvm", major, 0)
        self._put_node("nvidia-uvm-tools", major, 1)
        self._stir()

    def remove_node(self, name: str) -> None:
        """Remove a node below /dev.

        Raises:
            FileNotFoundError: there is none.
        """
        path = self.dev / name
        self.disk.remove(self.disk.find_directory(path.parent), path.name)
        self._stir()

    def deny_devices(self) -> None:
        """The device cgroup lets nobody in any more: what is open is, and NVML says Unknown Error."""
        self._may_open_devices = False
        self._stir()

    def allow_devices(self) -> None:
        """End what `deny_devices` did."""
        self._may_open_devices = True
        self._stir()

    # ---- what happens to the driver and the toolkit

    def upgrade_driver(self, version: str) -> None:
        """Install other libraries; the module that is loaded stays until `reload_driver` or a reboot."""
        self._remove_libraries()
        self._installed_version = version
        self._put_libraries()
        self._stir()

    def reload_driver(self) -> None:
        """Load the module that belongs to the installed libraries."""
        self._is_loaded = True
        self.loaded_version = self._installed_version
        self._write_proc()
        self._stir()

    def unload_driver(self) -> None:
        """Unload the module: nodes stay and cannot be opened."""
        self._is_loaded = False
        self.loaded_version = None
        self._write_proc()
        self._stir()

    def cover_proc(self) -> None:
        """What the legacy container runtime does: a tmpfs over /proc/driver/nvidia, as mountinfo tells."""
        self._write_mounts(_MOUNTS + _COVER)

    def mount_toolkit(self) -> None:
        """The toolkit's directory comes."""
        scenery.put_directory(self.disk, self.toolkit.directory)
        scenery.put_file(self.disk, self.toolkit.wrapper, b"#!/bin/sh\n", mode=0o755)
        scenery.put_file(self.disk, self.toolkit.program, _ELF + b"nvidia-ctk", mode=0o755)

    def swap_toolkit(self, version: str) -> None:
        """Another version of the toolkit comes where this one is."""
        self.toolkit = attrs.evolve(self.toolkit, version=version)
        self.mount_toolkit()
        self._stir()

    def spoil(
        self, symbol: Symbol, what: Return | Trouble, *, minor: int | None = None, times_max: int | None = None
    ) -> NvmlFault:
        """Let a function of NVML return a code, hang or crash, in every process; `heal` ends it."""
        fault = NvmlFault(symbol=symbol, what=what, minor=minor, times_max=times_max)
        self.nvml_faults.append(fault)
        self._stir()
        return fault

    def heal(self, fault: NvmlFault) -> None:
        """End what `spoil` did; what hangs already hangs for ever."""
        self.nvml_faults.remove(fault)
        self._stir()

    # ---- parts

    def _furnish(self) -> None:
        for path in (self.dev, self.driver.proc_root):
            scenery.put_directory(self.disk, path)
            self.disk.mount(path, is_volatile=True)
        self._put_libraries()
        binaries = self.driver.below_root(self.driver.binaries)
        scenery.put_file(self.disk, binaries / "nvidia-smi", _ELF + b"nvidia-smi", mode=0o755)
        if self.toolkit.is_mounted:
            self.mount_toolkit()

    def _put_libraries(self) -> None:
        directory = self.driver.below_root(self.driver.libraries)
        version = self._installed_version
        for name in _NAMES:
            scenery.put_file(self.disk, directory / f"{name}.so.{version}", _ELF + name.encode(), mode=0o755)
        for name, target in _LINKS.items():
            scenery.put_symlink(self.disk, directory / name, target.format(version=version))

    def _remove_libraries(self) -> None:
        directory = self.disk.find_directory(self.driver.below_root(self.driver.libraries))
        for name in _NAMES:
            self.disk.remove(directory, f"{name}.so.{self._installed_version}")
        self.disk.sync(directory)

    def _write_proc(self) -> None:
        """What the module tells; and nothing when it is not loaded."""
        self._write_mounts(_MOUNTS)
        for name, text in proc_files(tuple(self._gpus.values()), str(self.loaded_version)).items():
            path = self.driver.proc_root / "driver/nvidia" / name
            if self.loaded_version is not None:
                scenery.put_file(self.disk, path, text.encode(), mode=0o444)
            elif self._has(path):
                self.disk.remove(self.disk.find_directory(path.parent), path.name)

    def _write_mounts(self, text: str) -> None:
        proc = self.driver.proc_root
        scenery.put_file(self.disk, proc / "self/mountinfo", text.format(proc=proc).encode(), mode=0o444)

    def _put_node(self, name: str, major: int, minor: int) -> None:
        if not self._has(self.dev / name):
            scenery.put_special(
                self.disk, self.dev / name, Special.CHARACTER_DEVICE, mode=_NODE_MODE, device=(major, minor)
            )

    def _has(self, path: Path) -> bool:
        try:
            self.disk.find(path, follow=False)
        except FileNotFoundError:
            return False
        return True

    def _is_device(self, name: str) -> bool:
        try:
            node = self.disk.find(Path(posixpath.join(self.dev, name)))
        except OSError:
            return False
        return isinstance(node, SpecialNode) and node.special is Special.CHARACTER_DEVICE

    def _change(self, minor: int, **changes: object) -> None:
        # attrs.evolve knows which fields there are; a wrong name is its TypeError.
        self._gpus[minor] = attrs.evolve(self.gpu(minor), **changes)  # type: ignore[arg-type] # as said above
        self._stir()

    def _stir(self) -> None:
        for tell in tuple(self.stirred):
            tell()
