"""Versions: which are known, and the lowest that has every feature that a spec uses.

Source: CDI SPEC.md, "Released versions". 0.8.0 and 1.0.0 brought nothing to the file format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from .names import split_kind
from .problems import ROOT, Path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import ContainerEdits, Device, IntelRdt, Spec

KNOWN_VERSIONS: Final = (
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.4.0",
    "0.5.0",
    "0.6.0",
    "0.7.0",
    "0.8.0",
    "1.0.0",
    "1.1.0",
)
"""In their order. A version is one of these words, never a range."""
FLOOR_VERSION: Final = "0.3.0"
"""Older ones are known and refused."""
_RANK: Final = {version: rank for rank, version in enumerate(KNOWN_VERSIONS)}


@attrs.frozen
class Need:
    """The version that something in a spec needs, what it is, and where it stands."""

    version: str
    trigger: str
    at: Path = ROOT


def known_version(text: str) -> str | None:
    """The version that a `cdiVersion` names, one leading "v" dropped; None when it names none."""
    version = text.removeprefix("v")
    return version if version in _RANK else None


def is_below(version: str, other: str) -> bool:
    """Whether a known version is older than another."""
    return _RANK[version] < _RANK[other]


def minimum_version(spec: Spec) -> str:
    """The lowest version that has every feature of the spec; what a writer should write."""
    return needed(spec).version


def needed(spec: Spec) -> Need:
    """The lowest version that has every feature of the spec, with the first thing that needs it."""
    highest = Need(FLOOR_VERSION, "every spec")
    for need in needs(spec):
        if is_below(highest.version, need.version):
            highest = need
    return highest


def needs(spec: Spec) -> Iterator[Need]:
    """Everything in a spec that needs more than the floor."""
    if "." in split_kind(spec.kind)[1]:
        yield Need("0.6.0", "a class with a dot", ROOT / "kind")
    if spec.annotations:
        yield Need("0.6.0", "annotations", ROOT / "annotations")
    for index, device in enumerate(spec.devices):
        yield from _needs_of_device(device, ROOT / "devices" / index)
    yield from _needs_of_edits(spec.container_edits, ROOT / "containerEdits")


def _needs_of_device(device: Device, at: Path) -> Iterator[Need]:
    if device.name[:1].isdigit():
        yield Need("0.5.0", "a device name that begins with a digit", at / "name")
    if device.annotations:
        yield Need("0.6.0", "annotations", at / "annotations")
    yield from _needs_of_edits(device.container_edits, at / "containerEdits")


def _needs_of_edits(edits: ContainerEdits, at: Path) -> Iterator[Need]:
    for index, mount in enumerate(edits.mounts):
        if mount.type:
            yield Need("0.4.0", "a mount with a type", at / "mounts" / index / "type")
    for index, node in enumerate(edits.device_nodes):
        if node.host_path:
            yield Need("0.5.0", "a device node with a hostPath", at / "deviceNodes" / index / "hostPath")
    if edits.additional_gids:
        yield Need("0.7.0", "additionalGids", at / "additionalGids")
    if edits.net_devices:
        yield Need("1.1.0", "netDevices", at / "netDevices")
    if edits.intel_rdt is not None:
        yield _need_of_rdt(edits.intel_rdt, at / "intelRdt")


def _need_of_rdt(rdt: IntelRdt, at: Path) -> Need:
    if rdt.schemata is not None:
        return Need("1.1.0", "intelRdt.schemata", at / "schemata")
    if rdt.enable_monitoring:
        return Need("1.1.0", "intelRdt.enableMonitoring", at / "enableMonitoring")
    return Need("0.7.0", "intelRdt", at)
