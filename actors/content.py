"""What an assignment says, compared: the digest of the whole, and the fields that a new generation may not change.

Source: DESIGN, "Generations": while the actor lives only desiredState, snapshot, suspend, restartPolicy, lifecycle and
network.egress may differ.
"""

from __future__ import annotations

import enum
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from blake3 import blake3

from .assignment import Bundle, Container, Rootfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .assignment import WorkerAssignment

_Json: TypeAlias = "bool | int | float | str | list[_Json] | dict[str, _Json] | None"

_NOT_CONTENT: Final = frozenset({"digest", "generation"})
_OF_NO_CONTAINER: Final = frozenset({"requests"})
"""A request is a share of what is left over, and holds from the next activation on: it may differ at any time. And the
digests of assignments that were written before requests were kept stay right."""


def content_digest(assignment: WorkerAssignment) -> str:
    """BLAKE3, 64 hex digits, of the assignment's canonical JSON: all but its generation and requests, defaults in.

    Two documents that say the same in other words (`"1000m"` and `1`, a default left out) have one digest.
    """
    content = _fields(assignment)
    for name in _NOT_CONTENT:
        del content[name]
    return blake3(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _fields(value: attrs.AttrsInstance) -> dict[str, _Json]:
    return {name: _plain(getattr(value, name)) for name in _names_of(type(value)) or ()}


@functools.cache
def _names_of(kind: type[Any]) -> tuple[str, ...] | None:
    """The names of a model's fields; None for what is no model."""
    if not attrs.has(kind):
        return None
    passed_over = _OF_NO_CONTAINER if kind is Container else ()
    return tuple(field.name for field in attrs.fields(kind) if field.name not in passed_over)


def _plain(value: Any) -> _Json:
    """A model value as JSON; as deep as the model's classes nest. Classes are named, so that no two look the same."""
    names = _names_of(type(value))  # type: ignore[arg-type] # a class is hashable, whatever its instances are
    if names is not None:
        return {"": type(value).__name__, **{name: _plain(getattr(value, name)) for name in names}}
    match value:
        case enum.Enum():
            return {type(value).__name__: str(value.value)}
        case Path():
            return str(value)
        case tuple():
            return [_plain(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            message = f"an assignment holds no {type(value).__name__}"
            raise TypeError(message)


_ASSIGNMENT_FIELDS: Final[tuple[tuple[str, Callable[[WorkerAssignment], object]], ...]] = (
    ("metadata.uid", lambda assignment: assignment.uid),
    ("metadata.name", lambda assignment: assignment.name),
    ("metadata.namespace", lambda assignment: assignment.namespace),
    ("spec.sandboxClass", lambda assignment: assignment.sandbox_class),
    ("spec.reservation", lambda assignment: assignment.reservation),
    ("spec.terminationGracePeriodSeconds", lambda assignment: assignment.termination_grace_s),
    ("spec.durableVolumes", lambda assignment: assignment.durable_volumes),
    ("spec.network.ports", lambda assignment: assignment.network.ports),
)
_CONTAINER_FIELDS: Final[tuple[tuple[str, Callable[[Container], object]], ...]] = (
    ("bundle", lambda container: container.source if isinstance(container.source, Bundle) else None),
    ("rootfs", lambda container: container.source.path if isinstance(container.source, Rootfs) else None),
    ("imageDigest", lambda container: container.image_digest),
    ("resources.limits", lambda container: container.limits),
    ("volumeMounts", lambda container: container.volume_mounts),
    ("wakeupProbe", lambda container: container.wakeup_probe),
)
_ROOTFS_FIELDS: Final[tuple[tuple[str, Callable[[Rootfs], object]], ...]] = (
    ("args", lambda rootfs: rootfs.argv),
    ("env", lambda rootfs: rootfs.env),
    ("workingDir", lambda rootfs: rootfs.working_dir),
    ("user", lambda rootfs: rootfs.user),
    ("capabilities", lambda rootfs: rootfs.capabilities),
)


def mutable_difference(old: WorkerAssignment, new: WorkerAssignment) -> list[str]:
    """The paths of the fields that differ and may not while the actor lives; empty when `new` can be taken over.

    `command` and `args` are one argv by now, named `args`.
    """
    changed = [path for path, value in _ASSIGNMENT_FIELDS if value(old) != value(new)]
    return changed + list(_container_differences(old.containers, new.containers))


def _container_differences(old: tuple[Container, ...], new: tuple[Container, ...]) -> Iterator[str]:
    if [container.name for container in old] != [container.name for container in new]:
        yield "spec.containers"
        return
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        for name, value in _CONTAINER_FIELDS:
            if value(before) != value(after):
                yield f"spec.containers[{index}].{name}"
        if isinstance(before.source, Rootfs) and isinstance(after.source, Rootfs):
            for name, part in _ROOTFS_FIELDS:
                if part(before.source) != part(after.source):
                    yield f"spec.containers[{index}].{name}"
