"""The port for cgroups (v2): the worker's own, which it was given, and one below it for each activation.

An activation's cgroup is named `<uid>.<activation>`: by its actor, so that two never share one, and by its activation,
so that what was left of an earlier one is never taken for it. It has a leaf for the sandbox and one for each container,
in which that container's gofer is; limits lie on it as a whole, and usage is read of it as a whole, for in gVisor all
of an actor's memory and cpu time is the sandbox's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
"""Where cgroup v2 is mounted, as container engines do it."""
PROCESSES_FILE: Final = "cgroup.procs"
"""Who writes 0 into it is in that cgroup."""


class CgroupsUnavailableError(Exception):
    """Raised when no cgroup is ours to divide; its text says why, and what would help."""


@attrs.frozen(kw_only=True)
class Delegation:
    """What was found when the worker's cgroup was taken into its own hands.

    Attributes:
        actors: the directory in which the activations' cgroups are made.
        controllers: those that measure and limit them.
        missing: the other ones that would be of use, each with why it is not on.
    """

    actors: Path
    controllers: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class CgroupLimits:
    """What an activation's cgroup may take; None is no limit. One whose controller is not on is not laid.

    Attributes:
        cpu_quota_usec: µs of cpu time in each period of `CPU_PERIOD_USEC`.
        cpu_weight: its share beside the others, 1 to 10000.
        memory_bytes: of all memory. Where it is used up, everything in it ends, not just one process of a sandbox.
    """

    cpu_quota_usec: int | None = None
    cpu_weight: int | None = None
    memory_bytes: int | None = None


CPU_PERIOD_USEC: Final = 100_000


@attrs.frozen(kw_only=True)
class CgroupUsage:
    """What an activation has used since it began; None is not measured, which is never the same as 0.

    Attributes:
        cpu_usec: cpu time.
        throttled_periods: in how many periods its quota was used up.
        throttled_usec: how long it then waited.
        memory_bytes: now, page cache included.
        memory_peak_bytes: the most it ever was.
        working_set_bytes: now, without the page cache that the kernel would give up first.
        oom_kills: processes that ended because the memory was used up.
        processes: processes in it now.
    """

    cpu_usec: int | None = None
    throttled_periods: int | None = None
    throttled_usec: int | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    working_set_bytes: int | None = None
    oom_kills: int | None = None
    processes: int | None = None


class Cgroups(Protocol):
    """The cgroups of one worker. Nothing else is to be called before `delegate` has succeeded.

    Who is cancelled in `names` or `usage` leaves it behind at once, so that a deadline around them holds.
    """

    async def delegate(self) -> Delegation:
        """Take the worker's own cgroup in hand: move ourselves into a leaf of it, and turn controllers on, one by one.

        Any number of times: what an earlier life has made is found.

        Raises:
            CgroupsUnavailableError: there is none that is ours alone and can be divided.
        """
        ...

    async def make(self, name: str, *, leaves: Sequence[str], limits: CgroupLimits) -> None:
        """Make an activation's cgroup with its limits and its leaves, or nothing of it.

        Raises:
            OSError: it cannot be made; EEXIST when it is there.
        """
        ...

    async def remove(self, name: str, *, deadline_s: float) -> None:
        """Remove an activation's cgroup, if there is one, and end whatever is still in it.

        Raises:
            TimeoutError: something in it does not end.
            OSError: it cannot be removed.
        """
        ...

    async def names(self) -> tuple[str, ...]:
        """The activations' cgroups that are there, in order."""
        ...

    async def usage(self, name: str) -> CgroupUsage:
        """What an activation has used.

        Raises:
            FileNotFoundError: it has no cgroup, or none any more.
            OSError: it cannot be read.
        """
        ...
