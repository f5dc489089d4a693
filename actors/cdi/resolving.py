"""From devices to one set of edits.

Source: SPEC.md says only that edits are applied; the order is the Go library's, which every container engine uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .model import ContainerEdits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Device, Spec

T = TypeVar("T")


def merged(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """All edits, list after list; `intelRdt` is the last one's that has it, whole."""
    edits = tuple(parts)
    return ContainerEdits(
        env=_joined(part.env for part in edits),
        device_nodes=_joined(part.device_nodes for part in edits),
        net_devices=_joined(part.net_devices for part in edits),
        hooks=_joined(part.hooks for part in edits),
        mounts=_joined(part.mounts for part in edits),
        intel_rdt=next((part.intel_rdt for part in reversed(edits) if part.intel_rdt is not None), None),
        additional_gids=_joined(part.additional_gids for part in edits),
    )


def _joined(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(item for part in parts for item in part)


def edits_of(devices: Iterable[tuple[Spec, Device]]) -> ContainerEdits:
    """The edits of devices in their order; those of a spec once, right before its first device."""
    parts: list[ContainerEdits] = []
    met: set[int] = set()
    for spec, device in devices:
        # Two files may hold equal specs, and each contributes: it is the object that counts.
        if id(spec) not in met:
            met.add(id(spec))
            parts.append(spec.container_edits)
        parts.append(device.container_edits)
    return merged(parts)
