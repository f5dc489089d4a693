"""The GPUs that a CDI spec tells of, for who has a spec and no GPU: a plan for another machine.

A spec names device nodes, and a newer one UUIDs; it knows neither a place on the bus nor a model. What it does not say
is made up here, so that an inventory can be made at all, and `named` says which of it may be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.cdi import HostNode

from .granted_edits import GPU_MAJOR, GPU_NODE, is_mig_device
from .host_look import all_edits
from .inventory import MINOR_MAX, Gpu, Inventory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.cdi import Device, Spec

MODEL: Final = "not told by the CDI spec"
UNKNOWN_MAJOR: Final = 511
"""The first that Linux gives to a driver that has no number of its own."""
_UUID: Final = "GPU-"
_CONTROL_NODE: Final = "/dev/nvidiactl"
_CONTROL_MINOR: Final = 255
_MODE: Final = 0o666


@attrs.frozen(kw_only=True)
class SpecInventory:
    """What a spec tells.

    Attributes:
        inventory: the GPUs; the places on the bus and the models are made up.
        named: the UUIDs that the spec has itself; all others are made up.
        warnings: one sentence each.
    """

    inventory: Inventory
    named: frozenset[str]
    warnings: tuple[str, ...]


def spec_inventory(spec: Spec) -> SpecInventory:
    """The GPUs whose nodes stand in a spec, by minor, each with the UUID of a device that is that node alone."""
    minors: dict[int, set[str]] = {}
    mig: set[int] = set()
    for device in spec.devices:
        its = tuple(_minors(device))
        for minor in its:
            minors.setdefault(minor, set()).update({device.name} if len(its) == 1 else ())
        if is_mig_device(device):
            mig.update(its)
    named = {minor: min(uuids) for minor, names in minors.items() if (uuids := set(filter(_is_uuid, names)))}
    gpus = [
        Gpu(
            uuid=named.get(minor, f"{_UUID}of-minor-{minor}"),
            minor=minor,
            pci_bus_id=f"0000:{minor:02x}:00.0",
            model=MODEL,
            mig_devices=() if minor in mig else None,
        )
        for minor in minors
    ]
    warnings = [
        f"the {len(gpus)} GPUs are those of the CDI spec: NVML was not asked, so that they may be others, or lost"
    ]
    if len(named) < len(gpus):
        warnings.append("the CDI spec names GPUs by their nodes and not by UUID")
    return SpecInventory(inventory=Inventory(gpus), named=frozenset(named.values()), warnings=tuple(warnings))


@attrs.frozen(kw_only=True)
class SpecifiedNodes:
    """What a host would have at the nodes of a spec.

    Attributes:
        found: the nodes by their paths on the host.
        unknown: the paths of those whose numbers only their own machine knows; `UNKNOWN_MAJOR` stands for them.
    """

    found: Mapping[str, HostNode]
    unknown: tuple[str, ...]


def nodes_as_specified(spec: Spec) -> SpecifiedNodes:
    """The nodes of a spec with the numbers that it says, or NVIDIA always has; others, as nvidia-uvm's, are unknown."""
    found: dict[str, HostNode] = {}
    unknown: dict[str, None] = {}
    for node in (node for edits in all_edits(spec) for node in edits.device_nodes):
        gpu = GPU_NODE.fullmatch(node.path)
        major, minor = node.major, node.minor
        if not major and (gpu or node.path == _CONTROL_NODE):
            major, minor = GPU_MAJOR, int(gpu[1]) if gpu else _CONTROL_MINOR
        elif not major:
            major = UNKNOWN_MAJOR
            unknown[node.source] = None
        mode = _MODE if node.file_mode is None else node.file_mode
        found[node.source] = HostNode(type="c", major=major, minor=minor, mode=mode)
    return SpecifiedNodes(found=found, unknown=tuple(unknown))


def _minors(device: Device) -> Iterator[int]:
    paths = dict.fromkeys(node.path for node in device.container_edits.device_nodes)
    for path in paths:
        found = GPU_NODE.fullmatch(path)
        if found is not None and int(found[1]) <= MINOR_MAX:
            yield int(found[1])


def _is_uuid(name: str) -> bool:
    try:
        Gpu(uuid=name, minor=0, pci_bus_id="0000:00:00.0", model=MODEL)
    except ValueError:
        return False
    return True
