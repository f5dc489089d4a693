"""What comes of nodes, NVML and toolkit together: the GPUs that can be granted, and the spec that they are given by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.gpu.detection import Detected, judge, look_for_nodes
from actors.gpu.view import NvmlAnswers
from actors.runsc.nvproxy import Nvproxy, SupportedDrivers
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .check import failed, listed, ok, warn

if TYPE_CHECKING:
    from pathlib import Path

    from actors.gpu.desk import KeptSpec
    from actors.gpu.detection import Seen
    from actors.gpu.view import View
    from actors.ports import DriverPlaces, Files, Processes
    from supervisor.settings import CdiSource
    from supervisor.spec_source import SpecSource

    from .check import Check

INVENTORY: Final = "inventory"


async def look_for_gpus(files: Files, places: DriverPlaces) -> Seen | Problem:
    """The nodes as a worker would look for them, and what legacy mode leaves."""
    try:
        return await look_for_nodes(files, places)
    except ProblemError as error:
        return error.problem


def found_gpus(seen: Seen | Problem, view: View) -> Detected | Problem:
    """The GPUs as a worker would detect them."""
    if isinstance(seen, Problem):
        return seen
    try:
        return judge(seen, view)
    except ProblemError as error:
        return error.problem


def judge_inventory(found: Detected | Problem) -> Check:
    """Nodes and NVML tell of the same GPUs."""
    if isinstance(found, Problem):
        return failed(INVENTORY, found)
    usable, every = len(found.inventory.usable), len(found.inventory.gpus)
    told = f"{usable} of {every} can be granted"
    if found.warnings:
        return warn(INVENTORY, Reason.GPU_NOT_DETECTED, f"{told}; {'; '.join(found.warnings)}", _DIFFERING)
    return ok(INVENTORY, told)


async def spec_or_why(source: SpecSource, found: Detected | Problem) -> KeptSpec | Problem | None:
    """The spec that a worker would use; None when there is nothing to make one of."""
    if isinstance(found, Problem):
        return None
    try:
        return (await source.make(found.inventory, found.driver, None)).kept
    except ProblemError as error:
        return error.problem


def judge_spec(spec: KeptSpec | Problem | None, *, source: CdiSource) -> Check:
    """It could be made, and everything that it names is in this pod."""
    name = "cdi-spec"
    if isinstance(spec, Problem) and spec.reason is Reason.TOOLKIT_NOT_FOUND:
        return warn(name, Reason.GENERATE_FAILED, "not tried: there is no toolkit to make it", "See toolkit.")
    if isinstance(spec, Problem):
        return failed(name, spec)
    if spec is None:
        return warn(name, Reason.GENERATE_FAILED, "not tried: there is no GPU to make it for", f"See {INVENTORY}.")
    devices = listed(tuple(device.name for device in spec.spec.devices))
    return ok(name, f"from the {source}: {spec.spec.kind} with {devices}; {len(spec.libraries)} libraries")


async def look_at_support(processes: Processes, runsc: Path, view: View) -> Problem | tuple[str, ...] | None:
    """The drivers that runsc knows, or that ours is none of them; None where that is not to be had."""
    drivers = SupportedDrivers(processes, runsc)
    if not isinstance(view, NvmlAnswers):
        return await drivers.known()
    return await drivers.verdict(view.driver, step=Step.DETECT) or await drivers.known()


def judge_support(found: Problem | tuple[str, ...] | None, view: View, *, nvproxy: Nvproxy) -> Check:
    """Calls are passed on only to drivers that this gVisor knows."""
    name = "driver-support"
    if nvproxy is Nvproxy.OFF:
        return ok(name, "not asked: gVisor passes no calls on (--nvproxy off), and no program computes")
    if isinstance(found, Problem):
        return failed(name, found)
    if found is None:
        message = "this runsc does not say which drivers it knows"
        return warn(name, Reason.DRIVER_UNSUPPORTED_BY_RUNTIME, message, "Use a newer runsc, which says it.")
    if not isinstance(view, NvmlAnswers):
        message = f"runsc knows {len(found)} drivers, up to {max(found, key=_age)}; which one is loaded is not known"
        return warn(name, Reason.DRIVER_UNSUPPORTED_BY_RUNTIME, message, "See nvml.")
    return ok(name, f"runsc knows driver {view.driver}")


def _age(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


_DIFFERING: Final = "Only GPUs with a node and known to NVML are granted; look at what the device plugin gave the pod."
