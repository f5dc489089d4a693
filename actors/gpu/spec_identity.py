"""What a CDI spec belongs to, and how to see cheaply that nothing of that has changed.

The identity says everything that a spec was made from: driver, toolkit, the table of devices, the boot. It costs a look
at each device node. The stamps are what is looked at before that, at each ask: as long as they are the same, so is the
identity, and the files that the spec mounts are where they were.

Source: DESIGN, "The task tree" (what a spec is kept under).
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import FileKind

from .host_look import all_edits, look_at_nodes, stats_of
from .links import is_library

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from actors.cdi import Spec
    from actors.ports import DriverPlaces, Files, FileStat, Wall

    from .inventory import Inventory

_CONTROL_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_DIGITS: Final = 16
_SECOND_NS: Final = 1_000_000_000
_SETTLED_S: Final = 0.1
"""File systems keep times in ticks of some milliseconds: a second change within one cannot be told from the first."""


async def identity_of(
    files: Files, wall: Wall, places: DriverPlaces, inventory: Inventory, *, driver: str, maker: Iterable[str]
) -> str:
    """16 hex digits: the same ones as long as a spec would be the same.

    Whether a GPU is healthy is not in it: a spec that has a device for a lost one serves all others.

    Args:
        files: looks at the nodes.
        wall: knows the boot.
        places: where the driver is.
        inventory: the GPUs of the pod.
        driver: its version.
        maker: whatever tells one maker of the spec from another: a program and its version, files and their content.
    """
    gpus = [gpu for gpu in inventory.gpus if gpu.mig_devices is None]
    names = (*_CONTROL_NODES, *(f"nvidia{gpu.minor}" for gpu in gpus))
    nodes = await look_at_nodes(files, (str(places.dev_root / "dev" / name) for name in names))
    content = [
        wall.boot_id(),
        driver,
        [str(places.dev_root), str(places.driver_root)],
        [[gpu.uuid, gpu.minor, gpu.pci_bus_id] for gpu in gpus],
        [[path, None if node is None else list(attrs.astuple(node))] for path, node in nodes.items()],
        list(maker),
    ]
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


@attrs.frozen(kw_only=True)
class Stamp:
    """A path as it was.

    Attributes:
        path: what was looked at.
        has_watched_entries: whether it is a directory in which nothing may come or go.
        seen: what is another value when something happened there.
    """

    path: Path
    has_watched_entries: bool
    seen: Hashable


def watched_paths(spec: Spec) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The directories of the libraries that a spec mounts, and its other mounts themselves.

    Libraries are many in few directories, whose own time changes when one comes or goes; other files stand among
    strangers, in directories that change for anything.
    """
    mounts = dict.fromkeys(mount for edits in all_edits(spec) for mount in edits.mounts)
    paths = {mount.host_path: is_library(mount) for mount in mounts if mount.host_path.startswith("/")}
    folders = dict.fromkeys(posixpath.dirname(path) for path, library in paths.items() if library)
    return tuple(map(Path, folders)), tuple(Path(path) for path, library in paths.items() if not library)


async def stamps_of(
    files: Files, *, directories: Iterable[Path], others: Iterable[Path], now_s: float
) -> tuple[Stamp, ...] | None:
    """The stamps of some directories, whose entries count, and of other paths; None while one of them still changes."""
    stamps: list[Stamp] = []
    watched, single = tuple(directories), tuple(others)
    found = await stats_of(files.stat_each, (*watched, *single))
    for path, stat in zip(watched, found[: len(watched)], strict=True):
        if stat is not None and now_s - stat.mtime_ns / _SECOND_NS < _SETTLED_S:
            return None
        stamps.append(Stamp(path=path, has_watched_entries=True, seen=_seen(stat, has_watched_entries=True)))
    for path, stat in zip(single, found[len(watched) :], strict=True):
        stamps.append(Stamp(path=path, has_watched_entries=False, seen=_seen(stat, has_watched_entries=False)))
    return tuple(stamps)


async def still_hold(files: Files, stamps: Iterable[Stamp]) -> bool:
    """Whether nothing happened at any of these paths."""
    before = tuple(stamps)
    now = await stats_of(files.stat_each, [stamp.path for stamp in before])
    return all(
        _seen(stat, has_watched_entries=stamp.has_watched_entries) == stamp.seen
        for stamp, stat in zip(before, now, strict=True)
    )


def _seen(stat: FileStat | None, *, has_watched_entries: bool) -> Hashable:
    """What is mounted as a directory or a socket may change inside as it likes."""
    if stat is None:
        return None
    counts = has_watched_entries or stat.kind is FileKind.REGULAR
    return stat.kind, stat.inode, stat.mtime_ns if counts else None
