"""The Container Device Interface spec as frozen values: every field of versions 0.3.0 to 1.1.0.

Source: CDI SPEC.md 1.1.0, "CDI JSON Specification". Names are the spec's in snake_case. A field that is absent, null or
empty in a file is the empty value here; None stands only where absent differs from zero. The fields `enableCMT` and
`enableMBM` of `intelRdt` (0.7.0 to 1.0.0) have no place: 1.1.0 removed them, and no runtime acts upon them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    return dict(annotations)


@attrs.frozen(kw_only=True)
class DeviceNode:
    """A device node that appears in the container (`deviceNodes`, 0.1.0; `hostPath`, 0.5.0).

    Attributes:
        path: in the container.
        host_path: on the host; "" means the same path.
        type: "b", "c", "u", "p", or "" to take it from the host.
        major, minor: 0 for both to take them from the host.
        file_mode: permission bits; None to take them from the host.
        permissions: letters of "rwm" for the cgroup, "" for all of them, "none" for none.
        uid, gid: the owner; None for the user of the container's process.
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def source(self) -> str:
        """The path on the host."""
        return self.host_path or self.path


@attrs.frozen(kw_only=True)
class NetDevice:
    """A network interface that moves into the container (`netDevices`, 1.1.0)."""

    host_interface_name: str
    name: str


@attrs.frozen(kw_only=True)
class Mount:
    """A mount (`mounts`, 0.1.0; `type`, 0.4.0)."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@attrs.frozen(kw_only=True)
class Hook:
    """An OCI hook (`hooks`, 0.1.0). `hook_name` is its stage; `timeout` is in seconds."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@attrs.frozen(kw_only=True)
class IntelRdt:
    """Intel Resource Director Technology (`intelRdt`, 0.7.0; `schemata` and `enableMonitoring`, 1.1.0)."""

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] | None = None
    enable_monitoring: bool = False


@attrs.frozen(kw_only=True)
class ContainerEdits:
    """What changes in a container (`containerEdits`)."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is edited; an `intelRdt` without fields is an edit."""
        lists = (self.env, self.device_nodes, self.net_devices, self.hooks, self.mounts, self.additional_gids)
        return self.intel_rdt is None and not any(lists)


@attrs.frozen(kw_only=True)
class Device:
    """A device of a spec (`devices`; `annotations`, 0.6.0)."""

    name: str
    container_edits: ContainerEdits
    annotations: Mapping[str, str] = attrs.field(factory=dict, converter=_copied, hash=False)


@attrs.frozen(kw_only=True)
class Spec:
    """A whole spec (`annotations`, 0.6.0). `cdi_version` is the text as written, a leading "v" included."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    annotations: Mapping[str, str] = attrs.field(factory=dict, converter=_copied, hash=False)
    container_edits: ContainerEdits = attrs.field(factory=ContainerEdits)

    def device(self, name: str) -> Device | None:
        """The device of this name."""
        return next((device for device in self.devices if device.name == name), None)

    def qualified(self, name: str) -> str:
        """The qualified name of one of its devices: `vendor/class=name`."""
        return f"{self.kind}={name}"
