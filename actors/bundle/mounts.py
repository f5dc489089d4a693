"""Mounts of containers and the one form of their options.

Source: OCI runtime specification, "mounts"; mount(8).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.strict_json import JsonObject


@attrs.frozen(kw_only=True)
class Mount:
    """One mount: what stands where. Options may come in any order; `as_json` writes the normalised ones."""

    destination: str
    type: str
    source: str
    options: tuple[str, ...] = ()

    def as_json(self) -> JsonObject:
        """Return the member of `mounts`."""
        return {
            "destination": self.destination,
            "type": self.type,
            "source": self.source,
            "options": normalised_options(self.options),
        }


PROC: Final = Mount(destination="/proc", type="proc", source="proc", options=("nodev", "noexec", "nosuid"))

DEFAULT: Final = (
    PROC,
    Mount(
        destination="/dev", type="tmpfs", source="tmpfs", options=("mode=755", "nosuid", "size=65536k", "strictatime")
    ),
    Mount(
        destination="/dev/pts",
        type="devpts",
        source="devpts",
        options=("gid=5", "mode=0620", "newinstance", "noexec", "nosuid", "ptmxmode=0666"),
    ),
    Mount(
        destination="/dev/shm",  # noqa: S108 - a path inside the container
        type="tmpfs",
        source="shm",
        options=("mode=1777", "nodev", "noexec", "nosuid", "size=65536k"),
    ),
    Mount(destination="/sys", type="sysfs", source="sysfs", options=("nodev", "noexec", "nosuid", "ro")),
)

OURS: Final = (*(mount.destination for mount in DEFAULT if mount.destination.count("/") == 1), "/run/greenroom")
"""Where no volume may be mounted, and nothing below: what makes a container one, and what we put into it."""


def volume_mount(source: str, destination: str) -> Mount:
    """A durable volume, written through to the host, so that it outlives the sandbox. It gives nobody privileges."""
    options = ("nodev", "nosuid", "rbind", "rprivate", "rw")
    return Mount(destination=destination, type="bind", source=source, options=options)


def is_within(path: str, other: str) -> bool:
    """Whether an absolute path is another one or below it; both are normalised."""
    return path == other or path.startswith(f"{other.rstrip('/')}/")


# Words that exclude each other; of each line, the last one that is given counts, as mount(8) reads them.
_EXCLUSIVE: Final = (
    ("ro", "rw"),
    ("nosuid", "suid"),
    ("nodev", "dev"),
    ("noexec", "exec"),
    ("sync", "async"),
    ("noatime", "atime", "relatime", "norelatime", "strictatime", "nostrictatime"),
    ("nodiratime", "diratime"),
    ("private", "rprivate", "shared", "rshared", "slave", "rslave", "unbindable", "runbindable"),
)
_GROUP: Final[Mapping[str, str]] = MappingProxyType({word: line[0] for line in _EXCLUSIVE for word in line})


def normalised_options(options: Iterable[str]) -> list[str]:
    """Return options that mean the same in their one form: each once, contradictions settled, sorted.

    A restore may compare mounts word by word with those of the snapshot, and tools list the same options in any order.
    """
    last: dict[str, str] = {}
    for option in options:
        key, has_value, _ = option.partition("=")
        last[f"{key}=" if has_value else _GROUP.get(option, option)] = option
    return sorted(last.values())
