"""What a pod has of its machine whatever runs in it: cgroups, a clock, a boot id."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from statemachine.reasons import Reason

from .check import fail, ok, warn
from .mounts import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .check import Check
    from .mounts import MountPoint

CGROUPS: Final = "/sys/fs/cgroup"
YEAR_MIN, YEAR_MAX = 2024, 2199
"""No machine that this runs on is older than the oldest runsc that it takes."""
_BOOT_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_SHARED: Final = "no actor is limited or measured by itself, and the pod's own limits hold for all of them together"


def judge_cgroups(mounts: Iterable[MountPoint]) -> Check:
    """A worker divides the pod's cgroup among its actors where it can; this says where it cannot."""
    name, mount = "cgroup", mount_of(CGROUPS, mounts)
    if mount is None or mount.path != CGROUPS:
        return warn(
            name,
            Reason.CGROUP_UNAVAILABLE,
            f"nothing is mounted at {CGROUPS}: {_SHARED}",
            "Mount cgroup2 there, as container engines do, to see what actors use.",
        )
    if mount.file_system != "cgroup2":
        return warn(
            name,
            Reason.CGROUP_UNAVAILABLE,
            f"{CGROUPS} is cgroup v1: {_SHARED}",
            "Use a node with cgroup v2 (systemd.unified_cgroup_hierarchy=1).",
        )
    if mount.is_read_only:
        return warn(
            name,
            Reason.CGROUP_UNAVAILABLE,
            f"{CGROUPS} is cgroup v2, mounted read-only: {_SHARED}",
            "Actors run all the same; docs/cgroups.md says how a container gets it mounted for writing.",
        )
    return ok(name, f"{CGROUPS} is cgroup v2 and can be written: who is alone in its cgroup can divide it")


def judge_clock(now_s: float, boot_id: str | None) -> Check:
    """Journals and snapshots carry dates; what a process of an earlier boot left is known by the boot id."""
    name = "clock"
    if boot_id is None or not _BOOT_ID.fullmatch(boot_id):
        shown = "cannot be read" if boot_id is None else f"is {boot_id!r:.60}"
        return fail(
            name,
            Reason.PROCESSES_UNREADABLE,
            f"the kernel's boot id {shown}: what an earlier life left could not be told from what is new",
            "Mount /proc as container engines do.",
        )
    try:
        now = datetime.fromtimestamp(now_s, UTC)
    except (ValueError, OverflowError, OSError):
        now = None
    if now is None or not YEAR_MIN <= now.year <= YEAR_MAX:
        said = f"says {now:%Y-%m-%d}" if now else f"is {now_s:g} s from 1970"
        return warn(
            name,
            Reason.INVALID_VALUE,
            f"the clock {said}: dates of journals and snapshots would be wrong",
            "Set the node's clock (NTP) before actors run.",
        )
    return ok(name, f"{now:%Y-%m-%d %H:%M} UTC, boot {boot_id}")
