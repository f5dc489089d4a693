"""NVML, the driver's library, as one process has loaded it. A model: it answers at once, and nothing here waits.

`Symbol` has the C names of its functions; what fails raises the code that NVML returns. Where the real one never
returns or takes its process along, this one raises `NvmlHangs` or `NvmlCrashes`, and whoever plays the process does
what that means.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from sim.world.gpus import Health

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sim.world.gpus import ComputeProcess, Gpu, MigInstance


class Return(enum.IntEnum):
    """What NVML returns; the numbers of nvml.h, those worth a branch."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


TEXTS: Final = {
    Return.UNINITIALIZED: "Uninitialized",
    Return.INVALID_ARGUMENT: "Invalid Argument",
    Return.NOT_SUPPORTED: "Not Supported",
    Return.NO_PERMISSION: "Insufficient Permissions",
    Return.NOT_FOUND: "Not Found",
    Return.DRIVER_NOT_LOADED: "Driver Not Loaded",
    Return.TIMEOUT: "Timeout",
    # Not NVML's, which is not there: the Go binding's own.
    Return.LIBRARY_NOT_FOUND: "ERROR_LIBRARY_NOT_FOUND",
    Return.FUNCTION_NOT_FOUND: "Function Not Found",
    Return.GPU_IS_LOST: "GPU is lost",
    Return.RESET_REQUIRED: "GPU requires restart",
    Return.LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    Return.GPU_NOT_FOUND: "GPU Not Found",
    Return.UNKNOWN: "Unknown Error",
}
"""As `nvmlErrorString` has them; `GPU_NOT_FOUND` is in no table that was seen."""


class Symbol(enum.StrEnum):
    """What is called, by the symbol that pynvml resolves."""

    INIT = "nvmlInitWithFlags"
    SHUTDOWN = "nvmlShutdown"
    DRIVER_VERSION = "nvmlSystemGetDriverVersion"
    COUNT = "nvmlDeviceGetCount_v2"
    HANDLE_BY_INDEX = "nvmlDeviceGetHandleByIndex_v2"
    HANDLE_BY_UUID = "nvmlDeviceGetHandleByUUID"
    INDEX = "nvmlDeviceGetIndex"
    UUID = "nvmlDeviceGetUUID"
    NAME = "nvmlDeviceGetName"
    MINOR = "nvmlDeviceGetMinorNumber"
    PCI = "nvmlDeviceGetPciInfo_v3"
    MEMORY = "nvmlDeviceGetMemoryInfo"
    MIG_MODE = "nvmlDeviceGetMigMode"
    MIG_INSTANCE = "nvmlDeviceGetMigDeviceHandleByIndex"
    COMPUTE_PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
    EVENT_SET_CREATE = "nvmlEventSetCreate"
    REGISTER_EVENTS = "nvmlDeviceRegisterEvents"
    EVENT_SET_WAIT = "nvmlEventSetWait_v2"
    EVENT_SET_FREE = "nvmlEventSetFree"


class Trouble(enum.StrEnum):
    """What a call can do instead of returning."""

    HANG = "hang"
    CRASH = "crash"


class NvmlError(Exception):
    """Raised when NVML returns anything but success.

    Args:
        code: what it returns.
    """

    def __init__(self, code: Return) -> None:
        super().__init__(TEXTS[code])
        self.code = code


class NvmlHangs(Exception):  # noqa: N818 - it is no error of the library: the call never returns
    """Raised where the real call never returns."""


class NvmlCrashes(Exception):  # noqa: N818 - it is no error of the library: the process is gone
    """Raised where the real call ends its process with SIGSEGV."""


@attrs.define(eq=False, kw_only=True)
class NvmlFault:
    """What the calls of one function do instead of what they should.

    Attributes:
        symbol: the function.
        what: the code it returns, or worse.
        minor: of the only GPU that is meant.
        times_max: how often; None is always.
        fired: how often it did.
    """

    symbol: Symbol
    what: Return | Trouble
    minor: int | None = None
    times_max: int | None = None
    fired: int = 0

    def consider(self, symbol: Symbol, minor: int | None) -> None:
        """Do it, if this call is meant.

        Raises:
            NvmlError, NvmlHangs, NvmlCrashes: what was planned.
        """
        is_meant = symbol is self.symbol and self.minor in {None, minor}
        if not is_meant or (self.times_max is not None and self.fired >= self.times_max):
            return
        self.fired += 1
        match self.what:
            case Trouble.HANG:
                raise NvmlHangs(symbol)
            case Trouble.CRASH:
                raise NvmlCrashes(symbol)
            case code:
                raise NvmlError(code)


class Hardware(Protocol):
    """The machine, as its driver's library sees it."""

    @property
    def nvml_faults(self) -> Sequence[NvmlFault]:
        """What calls do instead of what they should."""
        ...

    @property
    def loaded_version(self) -> str | None:
        """Of the module; None while there is none."""
        ...

    @property
    def listeners(self) -> list[Callable[[int, int], None]]:
        """Are called with the minor of a GPU and the XID that it reports."""
        ...

    def library_version(self, library: Path) -> str | None:
        """The version of an NVML; None when nothing there can be loaded."""
        ...

    def visible(self) -> tuple[Gpu, ...]:
        """The GPUs whose device nodes are there, in the order of their index."""
        ...

    def may_open_devices(self) -> bool:
        """Whether the device cgroup lets anybody in."""
        ...

    def has_control_node(self) -> bool:
        """Whether /dev/nvidiactl is there."""
        ...

    def gpu(self, minor: int) -> Gpu:
        """How a GPU is now."""
        ...

    def instances(self, minor: int) -> tuple[MigInstance, ...]:
        """Into which it was split."""
        ...


@attrs.frozen
class Handle:
    """A GPU as a process of NVML names it."""

    minor: int


@attrs.frozen(kw_only=True)
class XidEvent:
    """An XID that came: on which GPU, and its number."""

    handle: Handle
    xid: int


@attrs.define(eq=False)
class EventSet:
    """What a process listens to.

    Attributes:
        told: is called whenever an event has come, so that nobody needs to poll.
    """

    told: list[Callable[[], None]] = attrs.field(factory=list)
    registered: set[int] = attrs.field(factory=set)
    pending: deque[XidEvent] = attrs.field(factory=deque)

    def hear(self, minor: int, xid: int) -> None:
        """Keep an event that was asked for."""
        if minor in self.registered:
            self.pending.append(XidEvent(handle=Handle(minor), xid=xid))
            for tell in tuple(self.told):
                tell()


class Nvml:
    """NVML in one process.

    The set of GPUs is that of the moment of `init`, as is the library: an upgrade is seen by who loads it anew.

    Args:
        hardware: the machine.
        library: which libnvidia-ml.so.1 is loaded.
    """

    def __init__(self, hardware: Hardware, library: Path) -> None:
        self._hardware = hardware
        self._library = library
        self._version: str | None = None
        self._minors: tuple[int, ...] = ()
        self._is_initialised = False

    def init(self) -> None:
        """Load the library, unless this process has it, and talk to the driver.

        Raises:
            NvmlError: LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH; UNKNOWN when devices may not be
                opened.
        """
        self._version = self._version or self._hardware.library_version(self._library)
        if self._version is None:
            raise NvmlError(Return.LIBRARY_NOT_FOUND)
        self._consider(Symbol.INIT)
        self._require_driver()
        self._minors = tuple(gpu.minor for gpu in self._hardware.visible())
        self._is_initialised = True

    def shutdown(self) -> None:
        """End what `init` began."""
        self._enter(Symbol.SHUTDOWN)
        self._is_initialised = False

    def driver_version(self) -> str:
        """The version of the driver."""
        self._enter(Symbol.DRIVER_VERSION)
        return str(self._hardware.loaded_version)

    def count(self) -> int:
        """How many GPUs there are, lost ones among them."""
        self._enter(Symbol.COUNT)
        return len(self._minors)

    def handle_by_index(self, index: int) -> Handle:
        """The GPU with an index: they are dense over what is visible.

        Raises:
            NvmlError: INVALID_ARGUMENT for no such index, GPU_IS_LOST.
        """
        minor = self._minors[index] if index in range(len(self._minors)) else None
        self._enter(Symbol.HANDLE_BY_INDEX, minor)
        if minor is None:
            raise NvmlError(Return.INVALID_ARGUMENT)
        return self._living(minor)

    def handle_by_uuid(self, uuid: str) -> Handle:
        """The GPU with a UUID.

        Raises:
            NvmlError: NOT_FOUND, GPU_IS_LOST.
        """
        minor = next((minor for minor in self._minors if self._hardware.gpu(minor).uuid == uuid), None)
        self._enter(Symbol.HANDLE_BY_UUID, minor)
        if minor is None:
            raise NvmlError(Return.NOT_FOUND)
        return self._living(minor)

    def index(self, handle: Handle) -> int:
        """Its index."""
        return self._minors.index(self._ask(Symbol.INDEX, handle).minor)

    def uuid(self, handle: Handle) -> str:
        """Its UUID."""
        return self._ask(Symbol.UUID, handle).uuid

    def name(self, handle: Handle) -> str:
        """Its model."""
        return self._ask(Symbol.NAME, handle).model

    def minor(self, handle: Handle) -> int:
        """The number of its device node."""
        return self._ask(Symbol.MINOR, handle).minor

    def pci_bus_id(self, handle: Handle) -> str:
        """Its bus, with an 8-digit domain."""
        return self._ask(Symbol.PCI, handle).pci_bus_id

    def memory(self, handle: Handle) -> tuple[int, int]:
        """Its memory and how much of it is used, bytes."""
        gpu = self._ask(Symbol.MEMORY, handle)
        return gpu.memory_bytes, sum(each.used_bytes for each in gpu.processes)

    def mig_mode(self, handle: Handle) -> tuple[int, int]:
        """1 for a GPU that can only be used in instances: now, and after the next reset."""
        mode = int(self._ask(Symbol.MIG_MODE, handle).is_in_mig_mode)
        return mode, mode

    def mig_instances(self, handle: Handle) -> tuple[MigInstance, ...]:
        """Its MIG devices, in the order of their index."""
        return self._hardware.instances(self._ask(Symbol.MIG_INSTANCE, handle).minor)

    def compute_processes(self, handle: Handle) -> tuple[ComputeProcess, ...]:
        """Who computes on it."""
        return self._ask(Symbol.COMPUTE_PROCESSES, handle).processes

    def event_set_create(self) -> EventSet:
        """Something to listen with."""
        self._enter(Symbol.EVENT_SET_CREATE)
        events = EventSet()
        self._hardware.listeners.append(events.hear)
        return events

    def register_xids(self, handle: Handle, events: EventSet) -> None:
        """Listen to the XIDs of a GPU, from now on."""
        events.registered.add(self._ask(Symbol.REGISTER_EVENTS, handle).minor)

    def event_set_wait(self, events: EventSet) -> XidEvent:
        """The next event, each one once.

        Raises:
            NvmlError: TIMEOUT, at once, when there is none.
        """
        self._enter(Symbol.EVENT_SET_WAIT)
        if not events.pending:
            raise NvmlError(Return.TIMEOUT)
        return events.pending.popleft()

    def event_set_free(self, events: EventSet) -> None:
        """Listen no more."""
        self._enter(Symbol.EVENT_SET_FREE)
        if events.hear in self._hardware.listeners:
            self._hardware.listeners.remove(events.hear)

    def _consider(self, symbol: Symbol, minor: int | None = None) -> None:
        for fault in self._hardware.nvml_faults:
            fault.consider(symbol, minor)

    def _enter(self, symbol: Symbol, minor: int | None = None) -> None:
        if not self._is_initialised:
            raise NvmlError(Return.UNINITIALIZED)
        self._consider(symbol, minor)
        self._require_driver()

    def _require_driver(self) -> None:
        if self._hardware.loaded_version is None or not self._hardware.has_control_node():
            raise NvmlError(Return.DRIVER_NOT_LOADED)
        if not self._hardware.may_open_devices():
            raise NvmlError(Return.UNKNOWN)
        if self._hardware.loaded_version != self._version:
            raise NvmlError(Return.LIB_RM_VERSION_MISMATCH)

    def _ask(self, symbol: Symbol, handle: Handle) -> Gpu:
        self._enter(symbol, handle.minor)
        return self._hardware.gpu(self._living(handle.minor).minor)

    def _living(self, minor: int) -> Handle:
        if self._hardware.gpu(minor).health is Health.LOST:
            raise NvmlError(Return.GPU_IS_LOST)
        return Handle(minor)
