"""A mock node as the model of NVML sees it: its state file and its files, as they are at each call.

It is to `sim.world.nvml` what the simulated machine is, so that a script can say of a mock node what its compiled NVML
says. Both read the state file anew whenever it is another one.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from sim.mock.layout import STATE_FILE
from sim.mock.state import NodeState, StateError, read_state
from sim.world.gpus import Gpu, Health
from sim.world.nvml import NvmlFault, Return, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.world.gpus import MigInstance

_ELF: Final = b"\x7fELF"
_NOTHING: Final = NodeState(loaded_version=None, cuda_version=0, gpus=())
"""What is said without a state file: in a container that was given the library alone, no driver is loaded."""
_UNKNOWN_VERSION: Final = "0"


class MockHardware:
    """`sim.world.nvml.Hardware` of a mock node, for one process.

    Attributes:
        listeners: are called with the minor of a GPU and the XID that it reports, once each, when it is looked at.
    """

    def __init__(self, directory: Path) -> None:
        self.listeners: list[Callable[[int, int], None]] = []
        self._path = directory / STATE_FILE
        self._dev = directory / "dev"
        self._mark: tuple[int, ...] | None = None
        self._state = _NOTHING
        self._faults: list[NvmlFault] = []
        self._met: list[NvmlFault] = []

    def refresh(self) -> NodeState:
        """How it is now; whoever listens is told of the XIDs that came."""
        try:
            # One that is put there in between is only read twice.
            told = self._path.stat()
            mark = (told.st_ino, told.st_mtime_ns, told.st_size)
            data = None if mark == self._mark else self._path.read_bytes()
        except OSError:
            self._mark, self._state, self._faults = None, _NOTHING, []
            return self._state
        if data is not None:
            self._mark = mark
            self._take(data)
        return self._state

    def _take(self, data: bytes) -> None:
        before = self._state
        try:
            self._state = read_state(data)
        except StateError:
            # The compiled one returns Unknown Error as well.
            version = before.loaded_version or _UNKNOWN_VERSION
            self._state = attrs.evolve(before, loaded_version=version, may_open_devices=False)
            self._faults = []
            return
        self._faults = [self._counting(each) for each in faults_of(self._state)]
        heard = {gpu.minor: len(gpu.xids) for gpu in before.gpus}
        for gpu in self._state.gpus:
            for xid in gpu.xids[heard.get(gpu.minor, len(gpu.xids)) :]:
                for tell in tuple(self.listeners):
                    tell(gpu.minor, xid)

    def _counting(self, fault: NvmlFault) -> NvmlFault:
        """The same fault as before goes on counting, whatever was in between."""
        met = next((each for each in self._met if _same(each, fault)), None)
        if met is None:
            self._met.append(fault)
        return met or fault

    # ---- what NVML asks

    @property
    def nvml_faults(self) -> list[NvmlFault]:
        """What calls do instead of what they should."""
        self.refresh()
        return self._faults

    @property
    def loaded_version(self) -> str | None:
        """Of the module; None while there is none."""
        return self.refresh().loaded_version

    def library_version(self, library: Path) -> str | None:
        """The version of an NVML, from the name of its file; None when nothing there can be loaded."""
        try:
            real = library.resolve(strict=True)
            with real.open("rb") as file:
                is_library = file.read(len(_ELF)) == _ELF
        except (OSError, RuntimeError):  # of a loop of links
            return None
        _, _, version = real.name.partition(".so.")
        return version if is_library else None

    def visible(self) -> tuple[Gpu, ...]:
        """The GPUs whose device nodes are there, in the order of their index."""
        return tuple(gpu for gpu in self.refresh().gpus if self._is_device(f"nvidia{gpu.minor}"))

    def may_open_devices(self) -> bool:
        """Whether the device cgroup lets anybody in."""
        return self.refresh().may_open_devices

    def has_control_node(self) -> bool:
        """Whether /dev/nvidiactl is there."""
        return self._is_device("nvidiactl")

    def gpu(self, minor: int) -> Gpu:
        """How a GPU is now; one that is in the state no more is lost."""
        try:
            return self.refresh().gpu(minor)
        except KeyError:
            return Gpu(uuid="", minor=minor, pci_bus_id="", health=Health.LOST)

    def instances(self, minor: int) -> tuple[MigInstance, ...]:  # noqa: ARG002 - as NVML asks it
        """No GPU of a mock node is split."""
        return ()

    def names(self, directory: Path) -> frozenset[str]:
        """What is in a directory; nothing where there is none."""
        try:
            return frozenset(path.name for path in directory.iterdir())
        except OSError:
            return frozenset()

    def _is_device(self, name: str) -> bool:
        try:
            return stat.S_ISCHR((self._dev / name).stat().st_mode)
        except OSError:
            return False


def faults_of(state: NodeState) -> list[NvmlFault]:
    """What a state scripts, in the words of the model."""
    return [
        NvmlFault(
            symbol=fault.symbol,
            what=Trouble(fault.what) if isinstance(fault.what, str) else Return(fault.what),
            minor=fault.minor,
            times_max=fault.times_max,
        )
        for fault in state.faults
    ]


def _same(one: NvmlFault, other: NvmlFault) -> bool:
    return (one.symbol, one.what, one.minor, one.times_max) == (other.symbol, other.what, other.minor, other.times_max)
