"""The GPUs of the pod: the device nodes that are there, and what NVML says of them. Either alone is not enough.

    seen = await look_for_nodes(files, places)     who has none is told so, whatever NVML says
    found = judge(seen, view)                      what comes of both

A node is `/dev/nvidia<N>`, a character device whose minor is N; any number, as a pod has those that it was given.
Control nodes (nvidiactl, nvidia-uvm, nvidia-modeset, nvidia-caps) are none. Where NVML sees more than the pod has nodes
of, the nodes count; a node that NVML does not know is named, and cannot be granted.

Source: DESIGN, "Partition"; nvidia-container-cli, which covers /proc/driver/nvidia of what it starts in legacy mode;
proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import FileKind, TooLargeError
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .inventory import MINOR_MAX, Gpu, Inventory
from .view import NvmlFails, inventory_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actors.ports import DriverPlaces, Files, FileStat

    from .view import NvmlAnswers, View

_NODE: Final = re.compile(r"nvidia(0|[1-9]\d{0,2})", re.ASCII)
_MOUNTINFO_BYTES_MAX: Final = 16 << 20
_MOUNT_POINT: Final = 4
_OCTAL: Final = re.compile(r"\\([0-7]{3})", re.ASCII)
LEGACY_HINT: Final = (
    "Configure the device plugin for cdi-cri or cdi-annotations, or set the mode of the NVIDIA container runtime to"
    " cdi; then start the pod anew."
)


@attrs.frozen(kw_only=True)
class Seen:
    """What the pod has of GPUs, as far as its file system tells.

    Attributes:
        minors: of the device nodes.
        covers: mount points with which the legacy container runtime hides the driver's /proc files.
    """

    minors: frozenset[int]
    covers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Detected:
    """The GPUs of the pod.

    Attributes:
        inventory: those that NVML knows and that have their node.
        driver: the driver's version.
        warnings: one sentence for each node that nobody can be granted, and for what NVML sees beyond the nodes.
    """

    inventory: Inventory
    driver: str
    warnings: tuple[str, ...] = ()


async def look_for_nodes(files: Files, places: DriverPlaces) -> Seen:
    """The device nodes, and whether the pod was started in legacy mode.

    Raises:
        ProblemError: NvmlUnavailable (of the step detect): what was to be looked at cannot be.
    """
    try:
        return Seen(minors=await _minors(files, places), covers=await _covers(files, places))
    except (OSError, TooLargeError) as error:
        where = error.filename or str(places.dev_root / "dev")
        message = f"{where} cannot be looked at: {error.strerror or error}"
        raise ProblemError(_problem(Reason.NVML_UNAVAILABLE, str(where), message)) from error


def require_nodes(seen: Seen) -> None:
    """Refuse a pod that was not given GPUs in a way that can be used.

    Raises:
        ProblemError: GpuNotDetected, CdiModeRequired (of the step detect).
    """
    if not seen.minors:
        message = "this pod has no GPU: there is no device node /dev/nvidia<N>"
        raise ProblemError(_problem(Reason.GPU_NOT_DETECTED, "nvidia.com/gpu", message))
    if seen.covers:
        message = f"the pod was started in NVIDIA legacy mode: {_listed(seen.covers)} covers what the driver tells"
        problem = _problem(Reason.CDI_MODE_REQUIRED, seen.covers[0], message)
        raise ProblemError(attrs.evolve(problem, hint=LEGACY_HINT))


def judge(seen: Seen, view: View) -> Detected:
    """What the nodes and NVML come to.

    Raises:
        ProblemError: GpuNotDetected, CdiModeRequired, NvmlUnavailable (of the step detect). NVML that answers and
            knows no GPU with a node of this pod does not answer for them, which is not the same as there being none.
    """
    require_nodes(seen)
    if isinstance(view, NvmlFails):
        raise ProblemError(_unusable(seen, view))
    known = inventory_of(view, step=Step.DETECT)
    gpus = [gpu for gpu in known.gpus if gpu.minor in seen.minors]
    if not gpus:
        told = f"it tells of {_listed(_beyond(known.gpus, seen)) or 'none'}{_unread(view)}"
        message = f"{_present(seen)}, 0 usable: NVML does not know {_listed(_paths(seen.minors))}; {told}"
        raise ProblemError(_problem(Reason.NVML_UNAVAILABLE, "nvml", message))
    inventory = Inventory(gpus, known.withheld)
    return Detected(inventory=inventory, driver=view.driver, warnings=tuple(_warnings(seen, view)))


# ------------------------------------------------------------------------------------------------------ what is there


async def _minors(files: Files, places: DriverPlaces) -> frozenset[int]:
    dev = places.dev_root / "dev"
    try:
        names = await files.list_directory(dev)
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    numbers = [int(found[1]) for found in map(_NODE.fullmatch, names) if found is not None]
    minors = [number for number in numbers if number <= MINOR_MAX]
    if not minors:
        return frozenset()
    nodes = await files.lstat_each([dev / f"nvidia{minor}" for minor in minors])
    return frozenset(minor for minor, node in zip(minors, nodes, strict=True) if _is_node(node, minor))


def _is_node(node: FileStat | None, minor: int) -> bool:
    if node is None or node.kind is not FileKind.CHARACTER_DEVICE or node.device is None:
        return False
    return node.device[1] == minor


async def _covers(files: Files, places: DriverPlaces) -> tuple[str, ...]:
    """What is mounted on /proc/driver/nvidia or below it; on a machine that was only given GPUs, nothing is.

    But for `params`: the toolkit's hook disable-device-node-modification covers that one file in CDI mode as well.
    """
    path = places.proc_root / "self/mountinfo"
    try:
        text = (await files.read(path, limit_bytes=_MOUNTINFO_BYTES_MAX)).decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    roots = {"/proc/driver/nvidia", str(places.proc_root / "driver/nvidia")}
    points = [_point(line) for line in text.splitlines()]
    inside = (p for p in points if any(p == root or p.startswith(f"{root}/") for root in roots))
    return tuple(dict.fromkeys(p for p in inside if p not in {f"{root}/params" for root in roots}))


def _point(line: str) -> str:
    fields = line.split(" ")
    point = fields[_MOUNT_POINT] if len(fields) > _MOUNT_POINT else ""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), point)


# ----------------------------------------------------------------------------------------------------- what comes of it


def _unusable(seen: Seen, view: NvmlFails) -> Problem:
    message = f"NVML does not answer: {view.why}; {_present(seen)}, 0 usable"
    return _problem(Reason.NVML_UNAVAILABLE, "nvml", message)


def _warnings(seen: Seen, view: NvmlAnswers) -> Iterator[str]:
    known = {gpu.minor for gpu in view.inventory.gpus}
    if unknown := seen.minors - known:
        yield f"NVML does not know {_listed(_paths(unknown))}{_unread(view)}"
    elif view.unread:
        yield f"NVML counts GPUs that it cannot name: {_listed(view.unread)}"
    if beyond := _beyond(view.inventory.gpus, seen):
        yield f"NVML sees GPUs that this pod has no node of: {_listed(beyond)}"


def _beyond(gpus: Iterable[Gpu], seen: Seen) -> list[str]:
    return [f"{gpu.path} ({gpu.uuid})" for gpu in gpus if gpu.minor not in seen.minors]


def _unread(view: NvmlAnswers) -> str:
    return f", and counts GPUs that it cannot name: {_listed(view.unread)}" if view.unread else ""


def _present(seen: Seen) -> str:
    count = len(seen.minors)
    return f"{count} node present" if count == 1 else f"{count} nodes present"


def _paths(minors: Iterable[int]) -> list[str]:
    return [f"/dev/nvidia{minor}" for minor in sorted(minors)]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.DETECT, reason=reason, subject=subject, message=message)
