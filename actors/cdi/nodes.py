"""Device nodes as they go into an OCI document: what the spec leaves open is taken from the host.

Source: CDI SPEC.md, "deviceNodes"; OCI runtime-spec, "Devices" and "Device allowlist".
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Final

import attrs

from .problems import CdiError, CdiProblem, CdiReason, quoted
from .validation import NO_PERMISSIONS

if TYPE_CHECKING:
    from .model import ContainerEdits, DeviceNode
    from .ports import HostNode

_FIFO: Final = "p"
_WITH_RULE: Final = frozenset("bc")
_ALL_PERMISSIONS: Final = "rwm"


@attrs.frozen(kw_only=True)
class Owner:
    """Whom a node belongs to unless it says so itself: the process of the container, when it is not root."""

    uid: int | None = None
    gid: int | None = None


def host_paths(edits: ContainerEdits, *, dev_root: str = "/") -> tuple[str, ...]:
    """The paths that an injection of these edits asks `lstat` about, each once: to look them up beforehand."""
    return tuple(dict.fromkeys(host_path(node, dev_root) for node in edits.device_nodes))


def host_path(node: DeviceNode, dev_root: str) -> str:
    """Where a node is looked at: below the root that holds the host's /dev."""
    return posixpath.join(dev_root, node.source.lstrip("/")) if dev_root != "/" else node.source


def filled(node: DeviceNode, found: HostNode | None, at: str) -> DeviceNode:
    """The node with everything that the host knows better.

    A node is complete when it has a type and (unless it is a fifo) a major number; then it need not be on the host,
    and if it is there, only its mode is taken.

    Raises:
        CdiError: HostNodeMissing HostNodeIsNone NodeTypeMismatch; OutOfRange for a negative number.
    """
    _require_one_device(node)
    is_complete = bool(node.type) and (node.major != 0 or node.type == _FIFO)
    if found is None or not found.type:
        if is_complete:
            return node
        raise _absent(node, found, at)
    if node.file_mode is None:
        node = attrs.evolve(node, file_mode=found.mode)
    if is_complete:
        return node
    if node.type not in {"", found.type}:
        message = f"the device node {quoted(at)} is of type {found.type}, not {node.type}"
        raise CdiError(
            CdiProblem(reason=CdiReason.NODE_TYPE_MISMATCH, message=message, path=node.path, value=node.type)
        )
    node = attrs.evolve(node, type=found.type)
    if node.type == _FIFO or node.major != 0:
        return node
    return attrs.evolve(node, major=found.major, minor=found.minor)


def as_device(node: DeviceNode, owner: Owner) -> dict[str, Any]:
    """An item of `linux.devices`. Only a fifo is written without numbers, unless it declares some."""
    device: dict[str, Any] = {"path": node.path, "type": node.type}
    if node.type != _FIFO or node.major or node.minor:
        device |= {"major": node.major, "minor": node.minor}
    uid = owner.uid if node.uid is None else node.uid
    gid = owner.gid if node.gid is None else node.gid
    optional = {"fileMode": node.file_mode, "uid": uid, "gid": gid}
    return device | {key: value for key, value in optional.items() if value is not None}


def as_rule(node: DeviceNode) -> dict[str, Any] | None:
    """An item of `linux.resources.devices`; only block and character devices have one."""
    if node.type not in _WITH_RULE:
        return None
    rule: dict[str, Any] = {"allow": True, "type": node.type, "major": node.major, "minor": node.minor}
    access = "" if node.permissions == NO_PERMISSIONS else node.permissions or _ALL_PERMISSIONS
    return rule | ({"access": access} if access else {})


def _require_one_device(node: DeviceNode) -> None:
    """A negative number means any in a rule for cgroups, so that one node would allow every device of the host."""
    for number in (node.major, node.minor):
        if number < 0:
            message = f"the device number {number} would allow every device"
            raise CdiError(
                CdiProblem(reason=CdiReason.OUT_OF_RANGE, message=message, path=node.path, value=str(number))
            )


def _absent(node: DeviceNode, found: HostNode | None, at: str) -> CdiError:
    if found is None:
        reason, message = CdiReason.HOST_NODE_MISSING, f"there is no device node at {quoted(at)}"
    else:
        reason, message = CdiReason.HOST_NODE_IS_NONE, f"what stands at {quoted(at)} is no device node"
    return CdiError(CdiProblem(reason=reason, message=message, path=node.path, value=at))
