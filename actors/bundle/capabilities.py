"""The capabilities of containers.

Source: OCI runtime specification, "process.capabilities"; capabilities(7).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actors.assignment import Container

SETS: Final = ("bounding", "effective", "permitted", "inheritable", "ambient")

DEFAULT: Final = (
    # What container runtimes grant when nobody says otherwise.
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)

MKNOD: Final = "CAP_MKNOD"


class Claims(enum.Enum):
    """Whether any container of an actor claims a device."""

    NONE = "none"
    DEVICES = "devices"


def claims_of(containers: Iterable[Container]) -> Claims:
    """Tell whether an actor claims a device, from what its containers ask for and nothing else."""
    return Claims.DEVICES if any(container.limits.devices for container in containers) else Claims.NONE


def capability_sets(names: Sequence[str], claims: Claims) -> dict[str, list[str]]:
    """Return the five sets: the names bounding, effective and permitted; nothing inheritable or ambient.

    An actor that claims a device loses CAP_MKNOD in every application container: with it, a container makes the node of
    a device that another one was granted. On runsc 20240729 that alone is no protection: as measured, it makes device
    nodes without looking at the capability, which is what `seccomp` is for.
    """
    granted = allowed(names, claims)
    return {name: [] if name in ("inheritable", "ambient") else list(granted) for name in SETS}


def allowed(names: Iterable[str], claims: Claims) -> list[str]:
    """Return the names sorted, each once, without those that the claims forbid."""
    return sorted(name for name in set(names) if claims is Claims.NONE or name != MKNOD)
