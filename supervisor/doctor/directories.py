"""The state directory and the run directory: can they be written, and on what are they?

Both are judged by where they are or would be made: the nearest directory above that exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import FileKind
from statemachine.reasons import Reason

from .check import fail, ok, warn
from .mounts import mount_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from actors.ports import Files

    from .check import Check
    from .mounts import MountPoint

FREE_BYTES_MIN: Final = 1 << 30
"""A snapshot is as large as what the actor has in memory; below this not even small ones fit."""
SOCKET_PATH_BYTES_MAX: Final = 107
"""Of a unix socket's path (`sun_path` without its NUL)."""
_NO_DISKS: Final = frozenset({
    "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "mqueue", "bpf", "securityfs",
    "configfs", "pstore", "fusectl", "binfmt_misc", "hugetlbfs", "autofs", "nsfs",
})  # fmt: skip
_PASSING: Final = {"tmpfs": "in memory", "ramfs": "in memory", "overlay": "in the container's own layer"}
"""What is there only as long as the pod, or the container."""


@attrs.frozen(kw_only=True)
class DirectoryFacts:
    """What was found where a directory is or would be.

    Attributes:
        path: the directory.
        standing: the nearest path at or above it where something is.
        kind: what that is.
        mount: what it is in; None when that is not known.
        free_bytes: what may still be written there.
        may_change: whether we may make entries there.
        is_root: whether we are who the worker will be.
    """

    path: Path
    standing: Path
    kind: FileKind
    mount: MountPoint | None
    free_bytes: int
    may_change: bool
    is_root: bool


async def look_at_directory(
    files: Files,
    path: Path,
    *,
    mounts: Iterable[MountPoint],
    may_change: Callable[[Path], bool],
    is_root: bool,
) -> DirectoryFacts:
    """Look; nothing is made.

    Raises:
        OSError: it cannot be looked at.
    """
    standing, found = path, await files.stat(path)
    while found is None:
        standing = standing.parent
        found = await files.stat(standing)
    return DirectoryFacts(
        path=path,
        standing=standing,
        kind=found.kind,
        mount=mount_of(str(standing), mounts),
        free_bytes=await files.free_bytes(standing),
        may_change=may_change(standing),
        is_root=is_root,
    )


def judge_state_dir(facts: DirectoryFacts) -> Check:
    """Snapshots, journals and sandboxes are below it."""
    name = "state-dir"
    obstacle = _obstacle(name, facts)
    if obstacle is not None:
        return obstacle
    if facts.mount is not None and facts.mount.file_system in _PASSING:
        return warn(
            name,
            Reason.STATE_UNWRITABLE,
            f"{facts.path} is on {facts.mount.file_system}, {_PASSING[facts.mount.file_system]}: snapshots end with it",
            "Mount a volume there (hostPath or a claim), or name one with --state-dir.",
        )
    if facts.free_bytes < FREE_BYTES_MIN:
        return warn(
            name,
            Reason.INSUFFICIENT_DISK,
            f"{facts.path} has {facts.free_bytes >> 20} MiB free: hardly room for a snapshot",
            "Free space there, or name another place with --state-dir.",
        )
    return ok(name, f"{facts.path} can be written, {facts.free_bytes >> 30} GiB free{_on(facts)}")


def judge_run_dir(facts: DirectoryFacts, *, socket: Path) -> Check:
    """The control socket is in it."""
    name = "run-dir"
    obstacle = _obstacle(name, facts)
    if obstacle is not None:
        return obstacle
    size_bytes = len(str(socket).encode())
    if size_bytes > SOCKET_PATH_BYTES_MAX:
        return fail(
            name,
            Reason.STATE_UNWRITABLE,
            f"{socket} has {size_bytes} bytes, and the path of a socket at most {SOCKET_PATH_BYTES_MAX}",
            "Name a directory with a shorter path with --run-dir.",
        )
    return ok(name, f"{facts.path} can be written{_on(facts)}")


def judge_unseen(name: str, path: Path, error: OSError, *, is_root: bool) -> Check:
    """A directory that could not be looked at."""
    told = fail if is_root else warn
    return told(name, Reason.STATE_UNWRITABLE, f"{path} cannot be looked at: {error.strerror or error}")


def _obstacle(name: str, facts: DirectoryFacts) -> Check | None:
    where = str(facts.path) if facts.standing == facts.path else f"{facts.path} would be made below {facts.standing},"
    if facts.kind is not FileKind.DIRECTORY:
        return fail(name, Reason.STATE_UNWRITABLE, f"{facts.standing} is no directory")
    if facts.mount is not None and facts.mount.file_system in _NO_DISKS:
        return fail(name, Reason.STATE_UNWRITABLE, f"{where} is on {facts.mount.file_system}, which holds no files")
    if facts.mount is not None and facts.mount.is_read_only:
        return fail(
            name,
            Reason.STATE_UNWRITABLE,
            f"{where} is mounted read-only",
            "Mount a volume there, or name another place.",
        )
    if not facts.may_change and facts.is_root:
        return fail(name, Reason.STATE_UNWRITABLE, f"{where} may not be written, not even by root")
    if not facts.may_change:
        return warn(
            name,
            Reason.STATE_UNWRITABLE,
            f"{where} may not be written by this user; whether root may is not known",
            "Run the doctor as root, as the worker is run.",
        )
    return None


def _on(facts: DirectoryFacts) -> str:
    made = "" if facts.standing == facts.path else f"; it would be made below {facts.standing}"
    return (f", on {facts.mount.file_system}" if facts.mount else "") + made
