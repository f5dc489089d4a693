"""NVML's word, asked in a child process: it can hang in the driver or crash, and the doctor must say so."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.gpu.view import NvmlAnswers
from statemachine.reasons import Reason

from .check import fail, listed, ok, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.gpu.inventory import Gpu, Inventory
    from actors.gpu.view import View

    from .check import Check

_HINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LIBRARY_NOT_FOUND": "Mount the driver's libraries into the pod and name the directory with --driver-root.",
        "DRIVER_NOT_LOADED": "The node's driver is not loaded, or nvidiactl is not in the pod: see device-nodes.",
        "LIB_RM_VERSION_MISMATCH": "The driver was upgraded under the pod; start the pod anew.",
        "NO_PERMISSION": "The device cgroup lets nobody in: start the pod by way of the device plugin.",
        "GPU_NOT_FOUND": "The driver is there, and no GPU of it was given to the pod.",
        "GPU_IS_LOST": "A GPU fell off the bus: reset it or restart the node.",
        "NVML_ERROR_UNKNOWN": "Most often the pod lost its devices (its cgroup was written anew); restart it.",
        "did not answer": "It hangs in the driver: look at the node's kernel log; does nvidia-smi answer there?",
    }
)
"""What to do, by a word of why it does not answer."""


_LOST: Final = "Reset the lost GPU, or restart its node; nobody is granted it."


def judge_nvml(view: View) -> Check:
    """It answers, and names GPUs that can be granted."""
    name = "nvml"
    if not isinstance(view, NvmlAnswers):
        hint = next((text for word, text in _HINTS.items() if word in view.why), "")
        return fail(name, Reason.NVML_UNAVAILABLE, f"NVML does not answer: {view.why}", hint)
    gpus = view.inventory.gpus
    if not gpus:
        unread = f"; of {len(view.unread)} it says only {listed(view.unread)}" if view.unread else ""
        message = f"NVML answers (driver {view.driver}) and sees no GPU{unread}"
        return fail(name, Reason.GPU_NOT_DETECTED, message)
    told = f"driver {view.driver}: {listed(tuple(map(_told, gpus)))}"
    if view.unread:
        message = f"{told}; and {len(view.unread)} that it cannot name: {listed(view.unread)}"
        return warn(name, Reason.GPU_LOST, message, _LOST)
    return _fault(name, view.inventory, told) or ok(name, told)


def _fault(name: str, inventory: Inventory, told: str) -> Check | None:
    """What keeps GPUs from being granted; in the way only where none is left."""
    as_bad = warn if inventory.usable else fail
    if any(gpu.lost is not None for gpu in inventory.gpus):
        return as_bad(name, Reason.GPU_LOST, told, _LOST)
    if any(gpu.mig_devices is not None for gpu in inventory.gpus):
        return as_bad(
            name, Reason.MIG_UNSUPPORTED, told, "Switch MIG off (nvidia-smi -mig 0); nobody is granted such a GPU."
        )
    return None


def _told(gpu: Gpu) -> str:
    state = f", lost ({gpu.lost})" if gpu.lost is not None else ", MIG" * (gpu.mig_devices is not None)
    return f"{gpu.path} {gpu.model} {gpu.uuid}{state}"
