"""The simulated cgroups of a machine, and the port of one life of the supervisor to them.

A process is born in its parent's cgroup; the program `enter` (`actors.enter_elf`) moves itself. What is in a cgroup is
asked of the process table; what it has used is made up, but for how many processes live in it.
"""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors.ports import PROCESSES_FILE, CgroupLimits, CgroupsUnavailableError, CgroupUsage, Delegation
from sim.world.errors import kernel_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from sim.world.process_table import ProcessTable, SimProcess

ACTORS: Final = Path("/sys/fs/cgroup/actors")
CONTROLLERS: Final = ("cpu", "memory")
SANDBOX_BYTES: Final = 35 << 20
"""What one process of a sandbox is said to take."""


@attrs.define(eq=False)
class SimCgroup:
    """The cgroup of one activation.

    Attributes:
        leaves: by name.
        limits: that were laid on it.
        made_s: when.
        oom_kills: how many processes the kernel has ended in it.
    """

    leaves: tuple[str, ...]
    limits: CgroupLimits
    made_s: float
    oom_kills: int = 0


class SimHierarchy:
    """The cgroups of one boot of a machine.

    Args:
        table: its processes.
        now_s: seconds of its clock.
        unavailable: why no cgroup is the worker's; None where one is.

    Attributes:
        cgroups: those of activations, by name.
    """

    def __init__(self, table: ProcessTable, *, now_s: Callable[[], float], unavailable: str | None = None) -> None:
        self.cgroups: dict[str, SimCgroup] = {}
        self.unavailable = unavailable
        self._table, self._now_s = table, now_s

    def enter(self, process: SimProcess, file: str) -> bool:
        """Move a process by the file of a leaf; whether there is such a leaf."""
        path = Path(file)
        leaf, cgroup = path.parent, self.cgroups.get(path.parent.parent.name)
        is_there = path.name == PROCESSES_FILE and cgroup is not None and leaf.name in cgroup.leaves
        if is_there:
            process.cgroup = str(leaf.relative_to(ACTORS))
        return is_there

    def make(self, name: str, leaves: tuple[str, ...], limits: CgroupLimits) -> None:
        """Make one.

        Raises:
            FileExistsError: it is there.
        """
        if name in self.cgroups:
            raise kernel_error(errno.EEXIST, name)
        self.cgroups[name] = SimCgroup(leaves=leaves, limits=limits, made_s=self._now_s())

    def remove(self, name: str) -> None:
        """End what is in it, and remove it."""
        for process in self.members(name):
            self._table.signal(process, signal.SIGKILL)
        self.cgroups.pop(name, None)

    def usage(self, name: str) -> CgroupUsage:
        """What it has used.

        Raises:
            FileNotFoundError: it is not there.
        """
        cgroup = self.cgroups.get(name)
        if cgroup is None:
            raise kernel_error(errno.ENOENT, name)
        count = len(tuple(self.members(name)))
        return CgroupUsage(
            cpu_usec=round((self._now_s() - cgroup.made_s) * 1_000_000),
            throttled_periods=0,
            throttled_usec=0,
            memory_bytes=count * SANDBOX_BYTES,
            memory_peak_bytes=count * SANDBOX_BYTES,
            working_set_bytes=count * SANDBOX_BYTES,
            oom_kills=cgroup.oom_kills,
            processes=count,
        )

    def run_out_of_memory(self, name: str) -> None:
        """The memory of one is used up: all of it ends, as `memory.oom.group` has it."""
        members = tuple(self.members(name))
        self.cgroups[name].oom_kills += len(members)
        for process in members:
            self._table.signal(process, signal.SIGKILL)

    def members(self, name: str) -> Iterator[SimProcess]:
        """The processes in one, in any of its leaves; zombies are in none any more."""
        return (each for each in self._table if each.is_running and each.cgroup.startswith(f"{name}/"))


class SimCgroups:
    """`Cgroups` of one life of the supervisor."""

    def __init__(
        self, hierarchy: SimHierarchy, *, let_others_run: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    ) -> None:
        self._hierarchy, self._one_turn = hierarchy, let_others_run

    async def delegate(self) -> Delegation:
        """Take the worker's own cgroup in hand."""
        await self._one_turn()
        if self._hierarchy.unavailable is not None:
            raise CgroupsUnavailableError(self._hierarchy.unavailable)
        return Delegation(actors=ACTORS, controllers=CONTROLLERS)

    async def make(self, name: str, *, leaves: Sequence[str], limits: CgroupLimits) -> None:
        """Make an activation's cgroup."""
        await self._one_turn()
        self._hierarchy.make(name, tuple(leaves), limits)

    async def remove(self, name: str, *, deadline_s: float) -> None:  # noqa: ARG002 - nothing here withstands SIGKILL
        """Remove an activation's cgroup, if there is one, and end whatever is still in it."""
        await self._one_turn()
        self._hierarchy.remove(name)

    async def names(self) -> tuple[str, ...]:
        """The activations' cgroups that are there."""
        await self._one_turn()
        return tuple(sorted(self._hierarchy.cgroups))

    async def usage(self, name: str) -> CgroupUsage:
        """What an activation has used."""
        await self._one_turn()
        return self._hierarchy.usage(name)
