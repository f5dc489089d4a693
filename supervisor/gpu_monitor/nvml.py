"""The real NVML: the one below the driver root, through nvidia-ml-py.

The library is loaded by its full path, so that the binding, which asks for it by its SONAME, finds it in the process:
neither LD_LIBRARY_PATH nor a cache of the dynamic linker has to know the driver root. A call that hangs holds no lock
of the interpreter (ctypes lets it go), so the thread that looks after the other end of stdout goes on.

Source: nvidia-ml-py 13.615 (`_LoadNvmlLibrary`); dlopen(3): a SONAME that is loaded is not looked for.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pynvml

from supervisor.gpu_monitor.libraries import candidates, library_version, module_version
from supervisor.gpu_monitor.looking import NvmlError, is_not_offered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PID_MAX: Final = 1 << 22
_VERSION_BYTES_MAX: Final = 4096


class DriverLibrary:
    """`supervisor.gpu_monitor.looking.Library` of a driver root.

    Args:
        driver_root: below which the library is.
        dev_root: below which `dev` is.
        proc_root: what /proc is.
    """

    def __init__(self, driver_root: str, dev_root: str, proc_root: str) -> None:
        self._driver_root = driver_root
        self._dev = os.path.join(dev_root, "dev")
        self._version_file = os.path.join(proc_root, "driver/nvidia/version")
        self._loaded: tuple[str, int, int] | None = None
        self._is_loaded = False
        self._events: Any = None
        self._uuids: dict[int | None, str] = {}
        self._is_deaf = False

    # ---- calls of NVML

    def init(self) -> None:
        """Load the library, unless it is, and initialise it."""
        self._load()
        try:
            _call(pynvml.nvmlInit)
        except NvmlError as error:
            self._is_loaded = self._is_loaded or error.code != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
            raise
        self._is_loaded = True

    def shutdown(self) -> None:
        """End the session, and listen to nothing any more."""
        self._stop_listening()
        self._is_deaf = False
        _call(pynvml.nvmlShutdown)

    def driver_version(self) -> str:
        """The version of the driver."""
        return str(_call(pynvml.nvmlSystemGetDriverVersion))

    def count(self) -> int:
        """How many GPUs there are."""
        return int(_call(pynvml.nvmlDeviceGetCount))

    def handle(self, index: int) -> Any:
        """The GPU with an index."""
        return _call(pynvml.nvmlDeviceGetHandleByIndex, index)

    def uuid(self, handle: Any) -> str:
        """Its UUID."""
        return str(_call(pynvml.nvmlDeviceGetUUID, handle))

    def minor(self, handle: Any) -> int:
        """The number of its device node."""
        return int(_call(pynvml.nvmlDeviceGetMinorNumber, handle))

    def pci_bus_id(self, handle: Any) -> str:
        """Its place on the bus."""
        return str(_call(pynvml.nvmlDeviceGetPciInfo, handle).busId)

    def model(self, handle: Any) -> str:
        """Its model."""
        return str(_call(pynvml.nvmlDeviceGetName, handle))

    def mig_devices(self, handle: Any) -> tuple[str, ...] | None:
        """The UUIDs of its MIG devices; None where MIG is off or not known to it."""
        try:
            mode, _ = _call(pynvml.nvmlDeviceGetMigMode, handle)
        except NvmlError as error:
            if is_not_offered(error):
                return None
            raise
        return tuple(self._mig_uuids(handle)) if mode == pynvml.NVML_DEVICE_MIG_ENABLE else None

    def compute_pids(self, handle: Any) -> tuple[int, ...]:
        """Who computes on it, by itself or through a server of MPS's, where this NVML knows such."""
        found = list(_call(pynvml.nvmlDeviceGetComputeRunningProcesses, handle))
        try:
            found += _call(pynvml.nvmlDeviceGetMPSComputeRunningProcesses, handle)
        except NvmlError as error:
            if not is_not_offered(error):
                raise
        # 0 is what the kernel makes of a process in a PID namespace that is not ours.
        return tuple(each.pid for each in found if 0 < each.pid <= _PID_MAX)

    def used_memory(self, handle: Any) -> int:
        """How much of its memory is in use."""
        return int(_call(pynvml.nvmlDeviceGetMemoryInfo, handle).used)

    def _mig_uuids(self, handle: Any) -> list[str]:
        found = []
        for index in range(_call(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)):
            try:
                device = _call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            except NvmlError as error:
                if error.code != pynvml.NVML_ERROR_NOT_FOUND:
                    raise
            else:
                found.append(str(_call(pynvml.nvmlDeviceGetUUID, device)))
        return found

    # ---- XIDs

    def listen(self, handles: Mapping[str, Any]) -> None:
        """Listen to the XIDs of these GPUs too."""
        for uuid, handle in handles.items():
            with suppress(NvmlError):
                if self._events is None:
                    self._events = _call(pynvml.nvmlEventSetCreate)
                _call(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
                self._uuids[_address(handle)] = uuid

    @property
    def is_deaf(self) -> bool:
        """Whether waiting failed."""
        return self._is_deaf

    def wait(self, limit_s: float) -> tuple[str | None, int] | None:
        """The next XID and the UUID of its GPU, if that is known; None when the time is over."""
        until_s = time.monotonic() + limit_s
        if self._events is not None:
            try:
                event = _call(pynvml.nvmlEventSetWait, self._events, math.ceil(limit_s * 1000))
            except NvmlError as error:
                if error.code == pynvml.NVML_ERROR_TIMEOUT:
                    return None
                self._stop_listening()
                self._is_deaf = True
            else:
                return self._uuids.get(_address(event.device)), int(event.eventData)
        time.sleep(max(0.0, until_s - time.monotonic()))
        return None

    def _stop_listening(self) -> None:
        events, self._events = self._events, None
        self._uuids.clear()
        if events is not None:
            with suppress(NvmlError):
                _call(pynvml.nvmlEventSetFree, events)

    # ---- files

    def nodes(self) -> frozenset[str]:
        """The names of the driver's device nodes."""
        try:
            return frozenset(name for name in os.listdir(self._dev) if name.startswith("nvidia"))
        except OSError:
            return frozenset()

    def versions(self) -> tuple[str, str]:
        """Of the library and of the module."""
        path = "" if self._loaded is None else self._loaded[0]
        return library_version(path), module_version(_beginning(self._version_file))

    @property
    def is_replaced(self) -> bool:
        """Whether another file is there than the one that was loaded."""
        if not self._is_loaded and self._loaded is None:
            return False
        there = next(iter(self._files()), None)
        return there is not None and there != self._loaded

    def _load(self) -> None:
        """Load the driver root's library; where it has none, the binding looks where the dynamic linker does."""
        if self._is_loaded or self._loaded is not None:
            return
        for file in self._files():
            # One that is of another architecture, or damaged, is passed over: another directory may have the right one.
            with suppress(OSError):
                ctypes.CDLL(file[0], ctypes.RTLD_GLOBAL)
                self._loaded = file
                return

    def _files(self) -> list[tuple[str, int, int]]:
        """The candidates that are there: the real path, and which file that is."""
        found = []
        for path in candidates(self._driver_root):
            try:
                real = os.path.realpath(path, strict=True)
                told = os.stat(real)
            except OSError:
                continue
            found.append((real, told.st_dev, told.st_ino))
        return found


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call NVML.

    Raises:
        NvmlError: with its own words, or those of the binding while there is no library.
    """
    try:
        return function(*arguments)
    except pynvml.NVMLLibraryMismatchError as error:
        # For the binding a class of its own, though it is a missing symbol.
        raise NvmlError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, str(error)) from error
    except pynvml.NVMLError as error:
        try:
            text = str(pynvml.nvmlErrorString(error.value))
        except pynvml.NVMLError:
            text = str(error)
        raise NvmlError(int(error.value), text) from error


def _beginning(path: str) -> str:
    """The first lines of a file; nothing when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(fd, _VERSION_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
