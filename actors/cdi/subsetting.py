"""Shares of one spec: what some devices have for themselves, what all have, and which names give no more than allotted.

Nothing here is in SPEC.md. It answers the question of whoever hands out devices of one host to several containers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from .aliases import nodes_of
from .problems import CdiProblem, CdiReason, quoted, raise_if_any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Device, Spec


@attrs.frozen(kw_only=True)
class Shares:
    """The nodes of a spec, by host path, seen from some of its devices.

    Attributes:
        common: of the spec itself: every container with one of its devices gets them.
        own: of these devices.
        foreign: of other devices only; a container must not have them.
    """

    common: frozenset[str]
    own: frozenset[str]
    foreign: frozenset[str]


def shares(spec: Spec, names: Iterable[str]) -> Shares:
    """The shares of some devices, by their names in the spec.

    Raises:
        CdiError: Unresolvable, for each name that the spec does not have.
    """
    devices = _devices(spec, names)
    common = nodes_of(spec.container_edits)
    own = frozenset[str]().union(*(nodes_of(device.container_edits) for device in devices)) - common
    every = frozenset[str]().union(*(nodes_of(device.container_edits) for device in spec.devices))
    return Shares(common=common, own=own, foreign=every - own - common)


def permitted(spec: Spec, names: Iterable[str]) -> tuple[str, ...]:
    """Every name that gives no node beyond those of the allotted devices, in the order of the spec.

    These are the allotted names, their aliases, and `all` exactly when the allotment is everything. A device without
    nodes of its own is permitted only by its name: what it gives cannot be compared.

    Raises:
        CdiError: Unresolvable, for each name that the spec does not have.
    """
    allotted = tuple(names)
    given = shares(spec, allotted)
    within = given.own | given.common

    def is_permitted(device: Device) -> bool:
        nodes = nodes_of(device.container_edits)
        return device.name in allotted or (bool(nodes - given.common) and nodes <= within)

    return tuple(device.name for device in spec.devices if is_permitted(device))


def require_permitted(spec: Spec, names: Iterable[str], *, allotted: Iterable[str]) -> None:
    """Refuse names that give more than the allotted devices.

    Raises:
        CdiError: NotAllotted for each of them, or Unresolvable.
    """
    allowed = set(permitted(spec, allotted))
    raise_if_any(
        CdiProblem(
            reason=CdiReason.NOT_ALLOTTED,
            message=f"{quoted(device.name)} gives device nodes beyond the allotment",
            device=device.name,
            value=device.name,
        )
        for device in _devices(spec, names)
        if device.name not in allowed
    )


def subset(spec: Spec, names: Iterable[str]) -> Spec:
    """The spec with some of its devices only, in its own order.

    Raises:
        CdiError: Unresolvable, for each name that the spec does not have.
    """
    wanted = {device.name for device in _devices(spec, names)}
    return attrs.evolve(spec, devices=tuple(device for device in spec.devices if device.name in wanted))


def _devices(spec: Spec, names: Iterable[str]) -> tuple[Device, ...]:
    wanted = tuple(dict.fromkeys(names))
    known = {device.name: device for device in spec.devices}
    raise_if_any(
        CdiProblem(
            reason=CdiReason.UNRESOLVABLE, message=f"{spec.kind} has no device called {quoted(name)}", value=name
        )
        for name in wanted
        if name not in known
    )
    return tuple(known[name] for name in wanted)
