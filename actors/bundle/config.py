"""The config.json of a container that is given as a rootfs and a command, and of the sandbox's root, `pause`.

Source: OCI runtime specification 1.0.2; the annotations are those that measured runsc 20240729 reads.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from . import capabilities, mounts, seccomp
from .capabilities import Claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from actors.assignment import Resources, Rootfs, User, WorkerAssignment
    from actors.strict_json import JsonObject

    from .mounts import Mount

OCI_VERSION: Final = "1.0.2"
PAUSE_NAME: Final = "pause"
PAUSE_ARGV: Final = ("/pause",)

CONTAINER_TYPE: Final = "io.kubernetes.cri.container-type"
CONTAINER_NAME: Final = "io.kubernetes.cri.container-name"
SANDBOX_ID: Final = "io.kubernetes.cri.sandbox-id"

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOBODY: Final = 65534

NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
_NAMESPACES: Final = ("pid", "ipc", "uts", "mount", "network")
_OPEN_FILES_SOFT, _OPEN_FILES_HARD = 1024, 524_288
_CPU_PERIOD_US: Final = 100_000
_CPU_QUOTA_US_MIN: Final = 1_000  # the kernel refuses less
_HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")


@attrs.frozen(kw_only=True)
class Membership:
    """Which container of which sandbox a bundle is for.

    Attributes:
        name: the container's name in its actor; the annotation that carries it ties the container to its part of a
            snapshot, whatever its id is then (measured on runsc 20240729).
        sandbox_id: the id of the sandbox's root container; None for that container itself.
    """

    name: str
    sandbox_id: str | None

    def annotations(self) -> dict[str, str]:
        """Return the annotations by which runsc knows a sandbox's root from its other containers."""
        if self.sandbox_id is None:
            return {CONTAINER_TYPE: "sandbox", CONTAINER_NAME: self.name}
        return {CONTAINER_TYPE: "container", CONTAINER_NAME: self.name, SANDBOX_ID: self.sandbox_id}


def hostname_of(assignment: WorkerAssignment) -> str:
    """Return the actor's name where it can be a hostname (at most 63 bytes here), else its uid, which always can."""
    return assignment.name if _HOSTNAME.fullmatch(assignment.name) else assignment.uid


def container_config(
    source: Rootfs,
    *,
    membership: Membership,
    hostname: str,
    limits: Resources,
    claims: Claims,
    extra_mounts: Iterable[Mount] = (),
) -> JsonObject:
    """Return the config.json of an application container that is given as a rootfs and a command.

    The rootfs is writable: with `--overlay2=root:memory` what is written stays inside the sandbox.
    """
    names = capabilities.DEFAULT if source.capabilities is None else source.capabilities
    process = _process(
        argv=source.argv,
        env=tuple(f"{name}={value}" for name, value in source.env),
        cwd=source.working_dir,
        user=_user(source.user),
        sets=capabilities.capability_sets(names, claims),
    )
    return {
        "ociVersion": OCI_VERSION,
        "process": process,
        "root": {"path": str(source.path), "readonly": False},
        "hostname": hostname,
        "mounts": [mount.as_json() for mount in (*mounts.DEFAULT, *extra_mounts)],
        "annotations": membership.annotations(),
        "linux": seccomp.confined(
            {"namespaces": [{"type": name} for name in _NAMESPACES], "resources": resources(limits)}, claims
        ),
    }


def pause_config(rootfs: Path, *, hostname: str, annotations: Mapping[str, str] = NO_ANNOTATIONS) -> JsonObject:
    """Return the config.json of the sandbox's root: no capability, no privilege, nothing writable, never a device.

    Args:
        rootfs: where its program is.
        hostname: the actor's.
        annotations: more of them, for the sandbox as a whole.
    """
    process = _process(
        argv=PAUSE_ARGV,
        env=(),
        cwd="/",
        user={"uid": NOBODY, "gid": NOBODY},
        sets=capabilities.capability_sets((), Claims.DEVICES),
    )
    return {
        "ociVersion": OCI_VERSION,
        "process": process,
        "root": {"path": str(rootfs), "readonly": True},
        "hostname": hostname,
        "mounts": [mounts.PROC.as_json()],
        "annotations": {**annotations, **Membership(name=PAUSE_NAME, sandbox_id=None).annotations()},
        "linux": {"namespaces": [{"type": name} for name in _NAMESPACES], "resources": {"devices": [_no_device()]}},
    }


def resources(limits: Resources) -> JsonObject:
    """Return `linux.resources` for limits: memory in bytes, cpu as quota and period, and no device of the host's."""
    return {"devices": [_no_device()], **limited(limits)}


def limited(limits: Resources) -> JsonObject:
    """Return only the members of `linux.resources` that the limits speak of."""
    found: JsonObject = {}
    if limits.memory_bytes is not None:
        found["memory"] = {"limit": limits.memory_bytes}
    if limits.cpu_milli is not None:
        quota_us = max(limits.cpu_milli * _CPU_PERIOD_US // 1000, _CPU_QUOTA_US_MIN)
        found["cpu"] = {"quota": quota_us, "period": _CPU_PERIOD_US}
    return found


def _no_device() -> JsonObject:
    return {"allow": False, "access": "rwm"}


def _user(user: User) -> JsonObject:
    numbers: JsonObject = {"uid": user.uid, "gid": user.gid}
    if user.additional_gids:
        numbers["additionalGids"] = list(user.additional_gids)
    return numbers


def _process(
    *, argv: tuple[str, ...], env: tuple[str, ...], cwd: str, user: JsonObject, sets: dict[str, list[str]]
) -> JsonObject:
    has_path = any(variable.startswith("PATH=") for variable in env)
    return {
        "terminal": False,
        "user": user,
        "args": list(argv),
        # Without PATH a command that is named without a slash is never found.
        "env": list(env) if has_path else [f"PATH={DEFAULT_PATH}", *env],
        "cwd": cwd,
        "capabilities": sets,
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": _OPEN_FILES_SOFT, "hard": _OPEN_FILES_HARD}],
        "noNewPrivileges": True,
    }
