"""The edits of a CDI spec for exactly the GPUs of one grant, with the device nodes as they are on this host.

A container gets the spec's common edits and those of its own devices, nothing of another one. What the host says of a
node wins over what the spec says of it: a spec is generated once, and nvidia-uvm's major is another one after a boot.

Source: DESIGN, "Partition" and rule 9; facts of CDI, section 10 (what gVisor makes of a device node).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from actors.cdi import edits_of
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .inventory import MINOR_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from actors.cdi import ContainerEdits, Device, DeviceNode, HostNode, Spec

    from .inventory import Gpu

CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Without these two no program reaches a GPU."""
GPU_NODE: Final = re.compile(r"/dev/nvidia(\d+)", re.ASCII)
GPU_MAJOR: Final = 195
"""The one major that Linux keeps for NVIDIA's GPUs and their control node."""
_CAPABILITY_NODES: Final = "/dev/nvidia-caps/"
_ALL: Final = "all"
_NAMES_SHOWN: Final = 32


def granted_edits(spec: Spec, gpus: Sequence[Gpu]) -> ContainerEdits:
    """The common edits and those of these GPUs' devices.

    Raises:
        ProblemError: CdiDeviceUnresolved for each GPU that the spec has no device for, or a control node that it lacks;
            MigUnsupported.
    """
    problems: list[Problem] = []
    devices: list[Device] = []
    for gpu in gpus:
        try:
            devices.append(device_of(spec, gpu))
        except ProblemError as error:
            problems += error.problems
    if problems:
        raise ProblemError(*problems)
    edits = edits_of((spec, device) for device in devices)
    _require_exactly(edits, gpus)
    return edits


def device_of(spec: Spec, gpu: Gpu) -> Device:
    """The device of a spec that is this GPU: by its UUID where the spec has such names, else by its node alone.

    Raises:
        ProblemError: CdiDeviceUnresolved, MigUnsupported.
    """
    by_name = spec.device(gpu.uuid)
    if by_name is not None and _gpu_nodes(by_name.container_edits) != {gpu.path}:
        there = ", ".join(sorted(_gpu_nodes(by_name.container_edits))) or "no GPU's node"
        raise _unresolved(spec.qualified(gpu.uuid), f"it has {there} in the CDI spec and {gpu.path} in this pod")
    same = [device for device in spec.devices if _gpu_nodes(device.container_edits) == {gpu.path}]
    # `all` comes last: on a pod with one GPU it is that GPU, too.
    found = by_name or next((device for device in same if device.name != _ALL), same[0] if same else None)
    if found is None:
        names = [device.name for device in spec.devices]
        more = ", …" if len(names) > _NAMES_SHOWN else ""
        known = ", ".join(names[:_NAMES_SHOWN]) + more
        raise _unresolved(spec.qualified(gpu.uuid), f"unknown, and no device has just {gpu.path}; known: {known}")
    if is_mig_device(found):
        message = f"{spec.qualified(found.name)} is a MIG device"
        raise ProblemError(
            Problem(
                step=Step.INJECT, reason=Reason.MIG_UNSUPPORTED, subject=spec.qualified(found.name), message=message
            )
        )
    return found


def is_mig_device(device: Device) -> bool:
    """Whether a device of a spec is a part of a GPU: only such a one has capability nodes."""
    return any(node.path.startswith(_CAPABILITY_NODES) for node in device.container_edits.device_nodes)


def is_gpu(major: int | None, minor: int | None) -> bool:
    """Whether these are the numbers of a GPU's node."""
    return major == GPU_MAJOR and minor is not None and minor <= MINOR_MAX


def host_nodes(
    nodes: Iterable[DeviceNode], found: Callable[[str], HostNode | None]
) -> tuple[tuple[DeviceNode, ...], tuple[str, ...]]:
    """The nodes complete, as they are on this host, each path once; and warnings.

    Args:
        nodes: of the edits.
        found: what lstat(2) says of a node's path on the host (`DeviceNode.source`).

    Raises:
        ProblemError: CdiDeviceUnresolved for each GPU's or control node that is not there, for each that is no
            character device, and for a GPU's node that is another GPU.
    """
    complete: dict[str, DeviceNode] = {}
    warnings: list[str] = []
    problems: list[Problem] = []
    for node in nodes:
        host = found(node.source)
        fault = _fault(node, host)
        if fault:
            problems += _unresolved(node.source, fault).problems
        elif host is None:
            warnings.append(f"{node.source} is in the CDI spec and not on this host")
        else:
            warnings += _differences(node, host)
            complete[node.path] = _as_on_host(node, host)
    if problems:
        raise ProblemError(*problems)
    return tuple(complete.values()), tuple(dict.fromkeys(warnings))


def _as_on_host(node: DeviceNode, host: HostNode) -> DeviceNode:
    mode = host.mode if node.file_mode is None else node.file_mode
    return attrs.evolve(node, type=host.type, major=host.major, minor=host.minor, file_mode=mode)


def _fault(node: DeviceNode, host: HostNode | None) -> str:
    gpu = GPU_NODE.fullmatch(node.path)
    if host is None:
        return "there is no such device node" if gpu or node.path in CONTROL_NODES else ""
    if host.type != "c":
        return "it is not a character device"
    if gpu and int(gpu[1]) != host.minor:
        return f"its minor is {host.minor}: it is another GPU"
    if not gpu and is_gpu(host.major, host.minor):
        return f"it is the GPU with minor {host.minor} under another name, {node.path}"
    return ""


def _differences(node: DeviceNode, host: HostNode) -> Iterator[str]:
    if node.type not in {"", host.type}:
        yield f"{node.source} has type {node.type} in the CDI spec and {host.type} on this host, which counts"
    if node.major != 0 and (node.major, node.minor) != (host.major, host.minor):
        yield (
            f"{node.source} is {node.major}:{node.minor} in the CDI spec and {host.major}:{host.minor} on this host, "
            "which counts"
        )


def _gpu_nodes(edits: ContainerEdits) -> set[str]:
    return {node.path for node in edits.device_nodes if GPU_NODE.fullmatch(node.path)}


def _require_exactly(edits: ContainerEdits, gpus: Sequence[Gpu]) -> None:
    """The last look before a container gets something: all that it was granted, and nothing else."""
    given, granted = _gpu_nodes(edits), {gpu.path for gpu in gpus}
    if given != granted:
        odd = ", ".join(sorted(given ^ granted))
        raise _unresolved(odd, "the CDI spec's edits do not give exactly the granted GPUs")
    paths = {node.path for node in edits.device_nodes}
    absent = [path for path in CONTROL_NODES if path not in paths]
    if absent:
        raise _unresolved(absent[0], f"the CDI spec's edits lack {' and '.join(absent)}")


def _unresolved(subject: str, message: str) -> ProblemError:
    return ProblemError(
        Problem(
            step=Step.INJECT,
            reason=Reason.CDI_DEVICE_UNRESOLVED,
            subject=subject,
            message=message if subject in message else f"{subject}: {message}",
        )
    )
