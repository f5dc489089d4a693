"""What this pod has at the paths that a CDI spec names, gathered beforehand for the functions that judge a spec.

Those are pure and cannot wait; a port's answer has to be waited for.

Source: facts of CDI, section 8 ("Filling a device node").
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.cdi import HostNode
from actors.ports import FileKind, FileStat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from actors.cdi import ContainerEdits, Spec
    from actors.ports import Files

    LookAtEach: TypeAlias = Callable[[Sequence[Path]], Awaitable[tuple[FileStat | None, ...]]]

_PERMISSIONS: Final = 0o777


@attrs.frozen(kw_only=True)
class HostLook:
    """A look at some paths; of any other path it knows nothing and says that it is absent.

    Attributes:
        nodes: what lstat(2) says of device nodes.
        files: the paths of mounts at which something stands.
    """

    nodes: Mapping[str, HostNode | None]
    files: frozenset[str]

    def lstat(self, path: str) -> HostNode | None:
        """What stands at a device node's path; None when nothing does, or nobody may look."""
        return self.nodes.get(path)

    def exists(self, path: str) -> bool:
        """Whether a mount's source is there."""
        return path in self.files


def all_edits(spec: Spec) -> tuple[ContainerEdits, ...]:
    """The edits of a spec: the common ones, and those of each device."""
    return (spec.container_edits, *(device.container_edits for device in spec.devices))


async def look_at(files: Files, spec: Spec) -> HostLook:
    """Look at everything on the host that a spec names."""
    edits = all_edits(spec)
    nodes = dict.fromkeys(node.source for each in edits for node in each.device_nodes)
    mounts = dict.fromkeys(mount.host_path for each in edits for mount in each.mounts)
    there = await _found_each(files.stat_each, mounts)
    standing = frozenset(path for path, stat in there.items() if stat is not None)
    return HostLook(nodes=await look_at_nodes(files, nodes), files=standing)


async def look_at_nodes(files: Files, paths: Iterable[str]) -> dict[str, HostNode | None]:
    """What lstat(2) says of each path."""
    return {path: host_node(stat) for path, stat in (await _found_each(files.lstat_each, paths)).items()}


async def stats_of(look: LookAtEach, paths: Sequence[Path]) -> tuple[FileStat | None, ...]:
    """What stands at each path; nothing where nobody may look."""
    if not paths:
        return ()
    try:
        return await look(paths)
    except OSError:  # one of them; it is not to hide the others
        return (None,) if len(paths) == 1 else tuple([(await stats_of(look, [path]))[0] for path in paths])


def host_node(stat: FileStat | None) -> HostNode | None:
    """What a look at a file is for a device node's path."""
    if stat is None:
        return None
    if stat.device is None:
        return HostNode(type="")
    major, minor = stat.device
    kind = "c" if stat.kind is FileKind.CHARACTER_DEVICE else "b"
    return HostNode(type=kind, major=major, minor=minor, mode=stat.mode & _PERMISSIONS)


async def _found_each(look: LookAtEach, paths: Iterable[str]) -> dict[str, FileStat | None]:
    found = dict[str, FileStat | None].fromkeys(paths)
    askable = [path for path in found if path.startswith("/") and "\0" not in path]
    return found | dict(zip(askable, await stats_of(look, [Path(path) for path in askable]), strict=True))
