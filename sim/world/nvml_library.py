"""The model of NVML as the monitor's program wants it (`supervisor.gpu_monitor.looking.Library`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sim.world.nvml import Hardware, Nvml, Return
from sim.world.nvml import NvmlError as ModelError
from supervisor.gpu_monitor.libraries import candidates
from supervisor.gpu_monitor.looking import NvmlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.ports import DriverPlaces
    from sim.world.nvml import EventSet, Handle

_Result = TypeVar("_Result")


class Node(Hardware, Protocol):
    """The machine, and what its directories have."""

    def names(self, directory: Path) -> frozenset[str]:
        """What is in a directory; nothing where there is none."""
        ...


class SimLibrary:
    """NVML as the process of one monitor has it.

    Args:
        node: the machine.
        places: where the driver is.
        wake: is called when an XID came.
    """

    def __init__(self, node: Node, places: DriverPlaces, wake: Callable[[], None]) -> None:
        self._node = node
        self._candidates = [Path(path) for path in candidates(str(places.driver_root))]
        self._dev = places.dev_root / "dev"
        self._wake = wake
        self._nvml: Nvml | None = None
        self._version = ""
        self._events: EventSet | None = None
        self._uuids: dict[int, str] = {}
        self._is_deaf = False

    # ---- calls of NVML

    def init(self) -> None:
        """Load the library, unless it is, and initialise it."""
        nvml = self._nvml or Nvml(self._node, self._place())
        version = self._found()
        try:
            _call(nvml.init)
        except NvmlError as error:
            if error.code == Return.LIBRARY_NOT_FOUND:
                raise  # nothing was loaded: the next try looks anew
            self._nvml, self._version = nvml, self._version or version
            raise
        self._nvml, self._version = nvml, self._version or version

    def shutdown(self) -> None:
        """End the session, and listen to nothing any more."""
        self._stop_listening()
        self._is_deaf = False
        _call(self._loaded.shutdown)

    def driver_version(self) -> str:
        """The version of the driver."""
        return _call(self._loaded.driver_version)

    def count(self) -> int:
        """How many GPUs there are."""
        return _call(self._loaded.count)

    def handle(self, index: int) -> Handle:
        """The GPU with an index."""
        return _call(self._loaded.handle_by_index, index)

    def uuid(self, handle: Handle) -> str:
        """Its UUID."""
        return _call(self._loaded.uuid, handle)

    def minor(self, handle: Handle) -> int:
        """The number of its device node."""
        return _call(self._loaded.minor, handle)

    def pci_bus_id(self, handle: Handle) -> str:
        """Its place on the bus."""
        return _call(self._loaded.pci_bus_id, handle)

    def model(self, handle: Handle) -> str:
        """Its model."""
        return _call(self._loaded.name, handle)

    def mig_devices(self, handle: Handle) -> tuple[str, ...] | None:
        """The UUIDs of its MIG devices; None where MIG is off."""
        mode, _ = _call(self._loaded.mig_mode, handle)
        return tuple(each.uuid for each in _call(self._loaded.mig_instances, handle)) if mode else None

    def compute_pids(self, handle: Handle) -> tuple[int, ...]:
        """Who computes on it."""
        return tuple(each.pid for each in _call(self._loaded.compute_processes, handle))

    def used_memory(self, handle: Handle) -> int:
        """How much of its memory is in use."""
        return _call(self._loaded.memory, handle)[1]

    # ---- XIDs

    def listen(self, handles: Mapping[str, Handle]) -> None:
        """Listen to the XIDs of these GPUs too."""
        for uuid, handle in handles.items():
            with suppress(ModelError):
                if self._events is None:
                    self._events = self._loaded.event_set_create()
                    self._events.told.append(self._wake)
                self._loaded.register_xids(handle, self._events)
                self._uuids[handle.minor] = uuid

    @property
    def is_deaf(self) -> bool:
        """Whether waiting failed."""
        return self._is_deaf

    def next_xid(self) -> tuple[str | None, int] | None:
        """The next XID that came, and the UUID of its GPU; None when there is none."""
        if self._events is None:
            return None
        try:
            event = self._loaded.event_set_wait(self._events)
        except ModelError as error:
            if error.code is not Return.TIMEOUT:
                self._stop_listening()
                self._is_deaf = True
            return None
        return self._uuids.get(event.handle.minor), event.xid

    def _stop_listening(self) -> None:
        events, self._events = self._events, None
        self._uuids.clear()
        if events is not None:
            with suppress(ModelError):
                self._loaded.event_set_free(events)

    # ---- files

    def nodes(self) -> frozenset[str]:
        """The names of the driver's device nodes."""
        return frozenset(name for name in self._node.names(self._dev) if name.startswith("nvidia"))

    def versions(self) -> tuple[str, str]:
        """Of the library and of the module."""
        return self._version, self._node.loaded_version or ""

    @property
    def is_replaced(self) -> bool:
        """Whether another library is there than the one that was loaded."""
        return bool(self._version) and self._found() not in {"", self._version}

    @property
    def _loaded(self) -> Nvml:
        if self._nvml is None:
            raise RuntimeError("NVML is asked before it was initialised")
        return self._nvml

    def _place(self) -> Path:
        there = (path for path in self._candidates if self._node.library_version(path))
        return next(there, self._candidates[0])

    def _found(self) -> str:
        return self._node.library_version(self._place()) or ""


def _call(function: Callable[..., _Result], *arguments: Any) -> _Result:
    try:
        return function(*arguments)
    except ModelError as error:
        raise NvmlError(error.code, str(error)) from error
