"""One look at NVML after the other, and the facts that come of it. Nothing here waits: whoever runs it does.

    look()                the heartbeat: an inventory and the processes of each GPU, or why there is none
    hear(uuid, xid)       an XID came; look at once afterwards

What is known of GPUs outlives a session (from nvmlInit to nvmlShutdown), as one that is lost cannot be named any more.
A session ends when a call fails that is about NVML as a whole. It is begun anew when device nodes came or went, and
while a GPU is missing: what NVML sees is what it saw when it was initialised. What fails or is missing for long is
tried ever more rarely, but never less often than at every fourth look.

Source: nvml.h; facts about which calls fail how are in sim/world/nvml.py and sim/mock/nvml_stub.c.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs

from actors.gpu.facts import ErrorFact, Fact, InventoryFact, MemoryFact, ProcessesFact, XidFact, error_name
from actors.gpu.inventory import Gpu, Inventory
from actors.gpu.xids import LOSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Result = TypeVar("_Result")

HEARTBEAT_S: Final = 3.0
"""Seconds between two looks, where nothing else is said."""
REST_LOOKS: Final = 100
"""For so many looks in a row a GPU with a fatal XID has to answer as if nothing were, to be taken for healthy. One that
is seen to be gone and back has been reset, and need not wait."""
_GAP_LOOKS_MAX: Final = 4

_UNINITIALIZED: Final = 1
_NOT_SUPPORTED: Final = 3
_DRIVER_NOT_LOADED: Final = 9
_LIBRARY_NOT_FOUND: Final = 12
_FUNCTION_NOT_FOUND: Final = 13
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16
_MISMATCH: Final = 18
_UNKNOWN: Final = 999
_OF_NVML: Final = frozenset({_UNINITIALIZED, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _MISMATCH})
"""Codes that say nothing about one GPU, whichever call returns them."""
_OF_A_LOST_GPU: Final = frozenset({_GPU_IS_LOST, _RESET_REQUIRED, _UNKNOWN})


class NvmlError(Exception):
    """Raised when NVML returns anything but success.

    Args:
        code: what it returned.
        text: what that means, in its words.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _CallError(Exception):
    """Raised when a call failed: which one, and with what."""

    def __init__(self, call: str, cause: NvmlError) -> None:
        super().__init__(call)
        self.call = call
        self.cause = cause

    @property
    def name(self) -> str:
        return error_name(self.cause.code)


class Library(Protocol):
    """NVML as one process has it, and what is to be known about its files. Every method of NVML raises `NvmlError`."""

    def init(self) -> None:
        """Begin, and load the library if this process does not have it yet; nvmlInit."""
        ...

    def shutdown(self) -> None:
        """End, and listen to nothing any more; nvmlShutdown."""
        ...

    def driver_version(self) -> str:
        """The version of the driver; nvmlSystemGetDriverVersion."""
        ...

    def count(self) -> int:
        """How many GPUs there are, lost ones among them; nvmlDeviceGetCount."""
        ...

    def handle(self, index: int) -> Any:
        """The GPU with an index; nvmlDeviceGetHandleByIndex."""
        ...

    def uuid(self, handle: Any) -> str:
        """Its UUID; nvmlDeviceGetUUID."""
        ...

    def minor(self, handle: Any) -> int:
        """The number of its device node; nvmlDeviceGetMinorNumber."""
        ...

    def pci_bus_id(self, handle: Any) -> str:
        """Its place on the bus; nvmlDeviceGetPciInfo."""
        ...

    def model(self, handle: Any) -> str:
        """Its model; nvmlDeviceGetName."""
        ...

    def mig_devices(self, handle: Any) -> tuple[str, ...] | None:
        """The UUIDs of its MIG devices; None where MIG is off; nvmlDeviceGetMigMode and others."""
        ...

    def compute_pids(self, handle: Any) -> tuple[int, ...]:
        """Who computes on it; nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetMPSComputeRunningProcesses."""
        ...

    def used_memory(self, handle: Any) -> int:
        """How much of its memory is in use; nvmlDeviceGetMemoryInfo."""
        ...

    def listen(self, handles: Mapping[str, Any]) -> None:
        """Listen to the XIDs of these GPUs too, by their UUIDs, as far as they let us: never an error."""
        ...

    @property
    def is_deaf(self) -> bool:
        """Whether listening was broken off by an error, so that only a new session hears again."""
        ...

    def nodes(self) -> frozenset[str]:
        """The names of all device nodes now; of no call of NVML, and never an error."""
        ...

    def versions(self) -> tuple[str, str]:
        """Of the library that is loaded, and of the module; each empty when it is not known."""
        ...

    @property
    def is_replaced(self) -> bool:
        """Whether another library would be loaded now: an upgrade is seen by a new process only."""
        ...


@attrs.define
class _Pace:
    """Every look at first, then every second, then every fourth."""

    gap: int = 1
    left: int = 0

    def is_due(self) -> bool:
        if self.left:
            self.left -= 1
            return False
        self.left = self.gap - 1
        self.gap = min(2 * self.gap, _GAP_LOOKS_MAX)
        return True


@attrs.define
class _Illness:
    """A fatal XID: what it is told as, and what has to be seen before it is over."""

    cause: str
    looks_left: int = REST_LOOKS
    was_gone: bool = False


@attrs.define
class _Session:
    """What is known since nvmlInit.

    Attributes:
        nodes: the device nodes of that moment.
        is_stale: what is missing may be found by another one.
        by_index: the UUIDs of GPUs by their index, which is the same for the whole session.
        heard: the UUIDs of the GPUs that are listened to.
    """

    nodes: frozenset[str]
    is_stale: bool = False
    by_index: dict[int, str] = attrs.field(factory=dict)
    heard: set[str] = attrs.field(factory=set)


class Looking:
    """What is known from one look to the next.

    Attributes:
        is_over: another process has to go on, with the library that is there now.
    """

    def __init__(self, library: Library) -> None:
        self.is_over = False
        self._library = library
        self._session: _Session | None = None
        self._pace = _Pace()
        self._failure: ErrorFact | None = None
        # As they were when they last could be named.
        self._known: dict[str, Gpu] = {}
        self._ill: dict[str, _Illness] = {}

    def look(self) -> tuple[Fact, ...]:
        """What there is now: never nothing."""
        if self._failure is not None and not self._pace.is_due():
            return (self._failure,)
        try:
            facts = self._facts()
        except _CallError as error:
            return (self._failed(error),)
        self._failure = None
        return facts

    def hear(self, uuid: str | None, xid: int) -> tuple[Fact, ...]:
        """An XID came, from a GPU or from nobody knows which."""
        if uuid is not None and xid in LOSING:
            self._ill[uuid] = _Illness(f"XID {xid}")
        return (XidFact(gpu=uuid, xid=xid),)

    # ---- sessions

    def _failed(self, error: _CallError) -> ErrorFact:
        self._end_session()
        if self._failure is None:
            self._pace = _Pace()
        message = error.cause.text
        if error.cause.code == _MISMATCH:
            library, module = self._library.versions()
            message += f": the libraries are of {library or '?'}, the loaded module is {module or '?'}"
        self._failure = ErrorFact(call=error.call, error=error.name, message=message)
        for illness in self._ill.values():
            illness.was_gone = True
        self.is_over = self._library.is_replaced
        return self._failure

    def _begin_session(self) -> _Session:
        nodes = self._library.nodes()
        if self._session is not None and (self._session.is_stale or self._session.nodes != nodes):
            self._end_session()
        if self._session is None:
            _called("nvmlInit", self._library.init)
            self._session = _Session(nodes)
        return self._session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session = None
            with suppress(NvmlError):  # the next nvmlInit tells whether that matters
                self._library.shutdown()

    # ---- one look

    def _facts(self) -> tuple[Fact, ...]:
        session = self._begin_session()
        driver = _called("nvmlSystemGetDriverVersion", self._library.driver_version)
        count = _called("nvmlDeviceGetCount", self._library.count)
        named: dict[str, tuple[Gpu, Any]] = {}
        unnamed: dict[int, _CallError] = {}
        for index in range(count):
            try:
                gpu, handle = self._look_at(index)
            except _CallError as error:
                unnamed[index] = _about_one(error)
            else:
                session.by_index[index] = gpu.uuid
                named[gpu.uuid] = gpu, handle
        self._listen(session, named)
        lost, unread = self._missing(session, named, unnamed)
        examined = [self._examined(gpu, handle) for gpu, handle in named.values()]
        gpus = [self._judged(gpu) for gpu in (*(gpu for gpu, _ in examined), *lost)]
        if lost or unread or self._library.is_deaf:
            session.is_stale = self._pace.is_due()
        else:
            self._pace = _Pace()
        inventory = InventoryFact(driver=driver, inventory=_inventory(gpus), unread=unread)
        memory = [self._memory(gpu, named[gpu.uuid][1]) for gpu in gpus if gpu.lost is None]
        return (inventory, *(fact for fact in (*(told for _, told in examined), *memory) if fact is not None))

    def _look_at(self, index: int) -> tuple[Gpu, Any]:
        library = self._library
        handle = _called("nvmlDeviceGetHandleByIndex", library.handle, index)
        uuid = _called("nvmlDeviceGetUUID", library.uuid, handle)
        minor = _called("nvmlDeviceGetMinorNumber", library.minor, handle)
        pci_bus_id = _called("nvmlDeviceGetPciInfo", library.pci_bus_id, handle)
        model = _called("nvmlDeviceGetName", library.model, handle)
        try:
            return Gpu(uuid=uuid, minor=minor, pci_bus_id=pci_bus_id, model=model), handle
        except ValueError as error:
            raise _CallError("nvmlDeviceGetUUID", NvmlError(_UNKNOWN, str(error))) from error

    def _listen(self, session: _Session, named: Mapping[str, tuple[Gpu, Any]]) -> None:
        new = {uuid: handle for uuid, (_, handle) in named.items() if uuid not in session.heard}
        if new:
            self._library.listen(new)
            session.heard |= set(new)

    def _missing(
        self, session: _Session, named: Mapping[str, tuple[Gpu, Any]], unnamed: Mapping[int, _CallError]
    ) -> tuple[list[Gpu], tuple[str, ...]]:
        """The GPUs that cannot be named and that it is known which they are; the errors of the others."""
        self._known = {uuid: gpu for uuid, gpu in self._known.items() if _has_its_place(gpu, named)}
        self._known |= {uuid: gpu for uuid, (gpu, _) in named.items()}
        gone = {uuid: gpu for uuid, gpu in self._known.items() if uuid not in named}
        for uuid in self._ill.keys() - named.keys():
            self._ill[uuid].was_gone = True
        lost, others = list[Gpu](), list[str]()
        for index, error in unnamed.items():
            gpu = gone.pop(session.by_index.get(index, ""), None)
            if gpu is not None:
                lost.append(attrs.evolve(gpu, lost=error.name))
            else:
                others.append(error.name)
        if len(gone) != len(others):
            return lost, tuple(others)
        # Indices are others in a new session. As many cannot be named as are gone: these are those.
        return [*lost, *(attrs.evolve(gpu, lost=name) for gpu, name in zip(gone.values(), others, strict=True))], ()

    def _examined(self, gpu: Gpu, handle: Any) -> tuple[Gpu, Fact | None]:
        """A GPU that could be named, with what else is to be told about it."""
        try:
            mig = _called("nvmlDeviceGetMigMode", self._library.mig_devices, handle)
            gpu = attrs.evolve(gpu, mig_devices=mig)
        except _CallError as error:
            # Whether it can be granted as a whole is not known, so it is not.
            return attrs.evolve(gpu, lost=_about_one(error).name), None
        try:
            pids = _called("nvmlDeviceGetComputeRunningProcesses", self._library.compute_pids, handle)
        except _CallError as error:
            if _about_one(error).cause.code in _OF_A_LOST_GPU:
                return attrs.evolve(gpu, lost=error.name), None
            return gpu, ErrorFact(call=error.call, error=error.name, gpu=gpu.uuid, message=error.cause.text)
        return gpu, ProcessesFact(gpu=gpu.uuid, pids=pids)

    def _memory(self, gpu: Gpu, handle: Any) -> MemoryFact | None:
        """How much of its memory is in use; that it does not say is no fault of its."""
        try:
            return MemoryFact(gpu=gpu.uuid, used_bytes=self._library.used_memory(handle))
        except (NvmlError, ValueError):
            return None

    def _judged(self, gpu: Gpu) -> Gpu:
        """A GPU that had a fatal XID is lost until it was reset, or has been well for long."""
        illness = self._ill.get(gpu.uuid)
        if illness is None:
            return gpu
        if gpu.lost is not None:
            illness.was_gone = True
        elif illness.was_gone or illness.looks_left <= 0:
            del self._ill[gpu.uuid]
            return gpu
        illness.looks_left -= 1
        return attrs.evolve(gpu, lost=illness.cause)


def is_not_offered(error: NvmlError) -> bool:
    """Whether a failure means that there is no such thing: MIG on this GPU, MPS in this library."""
    return error.code in {_NOT_SUPPORTED, _FUNCTION_NOT_FOUND}


def _called(call: str, function: Callable[..., _Result], *arguments: Any) -> _Result:
    try:
        return function(*arguments)
    except NvmlError as error:
        raise _CallError(call, error) from error


def _about_one(error: _CallError) -> _CallError:
    """The error, if it is about one GPU and not about all."""
    if error.cause.code in _OF_NVML:
        raise error
    return error


def _has_its_place(gpu: Gpu, named: Mapping[str, tuple[Gpu, Any]]) -> bool:
    """Whether no other board stands where a GPU stood."""
    return all(
        other.uuid == gpu.uuid or (other.minor != gpu.minor and other.pci_bus_id != gpu.pci_bus_id)
        for other, _ in named.values()
    )


def _inventory(gpus: Sequence[Gpu]) -> Inventory:
    try:
        return Inventory(gpus)
    except ValueError as error:  # it contradicts itself
        raise _CallError("nvmlDeviceGetMinorNumber", NvmlError(_UNKNOWN, str(error))) from error
