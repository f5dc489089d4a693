"""The cgroups of one life of the supervisor, each call through its gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.ports import CgroupLimits, Cgroups, CgroupUsage, Delegation
    from sim.world.calls import Gate


class GatedCgroups:
    """`Cgroups` through a gate."""

    def __init__(self, gate: Gate, inner: Cgroups) -> None:
        self._gate = gate
        self._inner = inner

    async def delegate(self) -> Delegation:
        """Take the worker's own cgroup in hand."""
        return await self._gate.cross("cgroups", "delegate", "", self._inner.delegate)

    async def make(self, name: str, *, leaves: Sequence[str], limits: CgroupLimits) -> None:
        """Make an activation's cgroup."""
        await self._gate.cross("cgroups", "make", name, self._inner.make, name, leaves=leaves, limits=limits)

    async def remove(self, name: str, *, deadline_s: float) -> None:
        """Remove an activation's cgroup."""
        await self._gate.cross("cgroups", "remove", name, self._inner.remove, name, deadline_s=deadline_s)

    async def names(self) -> tuple[str, ...]:
        """The activations' cgroups that are there."""
        return await self._gate.cross("cgroups", "names", "", self._inner.names)

    async def usage(self, name: str) -> CgroupUsage:
        """What an activation has used."""
        return await self._gate.cross("cgroups", "usage", name, self._inner.usage, name)
