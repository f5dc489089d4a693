"""One device under several names: an index and a UUID, and `all` where there is one device only.

A spec does not say that two of its names mean one device; the nodes on the host do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from .paths import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import ContainerEdits


@attrs.frozen(kw_only=True)
class AliasGroup:
    """Names of one device.

    Attributes:
        names: qualified names, sorted.
        nodes: the host paths of its device nodes; empty when it has none, and then it has one name.
    """

    names: tuple[str, ...]
    nodes: frozenset[str]


def nodes_of(edits: ContainerEdits) -> frozenset[str]:
    """The host paths of all device nodes, lexically clean."""
    return frozenset(clean(node.source) for node in edits.device_nodes)


def join_aliases(devices: Iterable[tuple[str, ContainerEdits]]) -> tuple[AliasGroup, ...]:
    """Names whose device edits have the very same nodes, joined; ordered by their first names.

    MIG devices share the node of their parent and differ in their capability nodes, so that they stay apart. Devices
    without nodes have nothing to be told by and stay apart too.
    """
    by_nodes: dict[frozenset[str], list[str]] = {}
    groups: list[AliasGroup] = []
    for name, edits in devices:
        nodes = nodes_of(edits)
        if nodes:
            by_nodes.setdefault(nodes, []).append(name)
        else:
            groups.append(AliasGroup(names=(name,), nodes=nodes))
    groups += [AliasGroup(names=tuple(sorted(set(names))), nodes=nodes) for nodes, names in by_nodes.items()]
    return tuple(sorted(groups, key=lambda group: group.names))
