"""What nvidia-ctk 1.20 puts into the edits of a CDI spec, and how it tidies a spec in the end.

Specs and edits are plain documents here, with the keys in the order of the real program.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.world.nodes import Special, SpecialNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sim.world.disk import SimDisk
    from sim.world.nodes import Node

_KEYS: Final = ("env", "deviceNodes", "hooks", "mounts", "additionalGids")
_SHARED: Final = ("env", "deviceNodes", "hooks", "mounts")
"""What a device need not have that all devices have; groups are not among it."""
_READ_AND_WRITTEN_BY_ALL: Final = 0o006


class GenerateError(Exception):
    """Raised when no spec comes of it; its text is what the program says last."""


@attrs.frozen(kw_only=True)
class Request:
    """What a spec is asked for, every default filled in.

    Attributes:
        driver_root, dev_root: below which the driver's files and `dev` are.
        library_folders: where libraries are looked for first, as paths of the machine.
        binary_folders: the same for binaries.
        kind: vendor and class.
        strategies: how devices are named.
        ids: which devices; none is all.
        hook: the program of the hooks.
        disabled_hooks: those that are left out.
        ldconfig: what `update-ldcache` is told to use.
        has_all_device: whether there is a device of all.
        has_groups: whether the groups of nodes that not everybody may open are listed.
    """

    driver_root: str
    dev_root: str
    library_folders: Sequence[str]
    binary_folders: Sequence[str]
    kind: str
    strategies: Sequence[str]
    ids: Sequence[str]
    hook: str
    disabled_hooks: frozenset[str]
    ldconfig: str
    has_all_device: bool
    has_groups: bool

    def made_hook(self, name: str, *arguments: str) -> tuple[dict[str, Any], ...]:
        """A hook; none where it is disabled."""
        if self.disabled_hooks & {name, "all"}:
            return ()
        program = posixpath.basename(self.hook)
        env = ["NVIDIA_CTK_DEBUG=false"]
        args = [program, name, *arguments]
        return ({"hookName": "createContainer", "path": self.hook, "args": args, "env": env},)


class Nodes:
    """The device nodes of a machine as a spec has them.

    Args:
        disk: what is looked at.
        request: where, and whether groups are listed.
        say: takes what is logged on the way: a level and a text.
    """

    def __init__(self, disk: SimDisk, request: Request, say: Callable[[str, str], None]) -> None:
        self._disk = disk
        self._request = request
        self._say = say

    def edits(self, paths: Iterable[str]) -> dict[str, Any]:
        """Those that are there, and the groups that they need."""
        nodes = [node for path in paths if (node := self._node(path)) is not None]
        groups = [node["gid"] for node in nodes if self._request.has_groups and _needs_its_group(node)]
        return edits_of(deviceNodes=nodes, additionalGids=groups)

    def _node(self, path: str) -> dict[str, Any] | None:
        """A node as the host has it; what is no character device is as good as absent."""
        where = joined(self._request.dev_root, path)
        node = found(self._disk, Path(where))
        if not isinstance(node, SpecialNode) or node.special is not Special.CHARACTER_DEVICE or node.device is None:
            self._say("warning", f"Could not locate {path}: {path}: not found")
            return None
        self._say("info", f"Selecting {where} as {path}")
        major, minor = node.device
        told = {
            "path": path,
            "hostPath": "" if where == path else where,
            "major": major,
            "minor": minor,
            "fileMode": node.mode & 0o777,
            "permissions": "rwm",
            "gid": node.gid,
        }
        return {key: value for key, value in told.items() if value not in {"", 0}}


def _needs_its_group(node: dict[str, Any]) -> bool:
    """Whether not everybody may read and write it; without a mode nobody knows."""
    mode = node.get("fileMode")
    return "gid" in node and mode is not None and mode & _READ_AND_WRITTEN_BY_ALL != _READ_AND_WRITTEN_BY_ALL


def edits_of(**parts: Sequence[Any]) -> dict[str, Any]:
    """Edits of these parts, without those that are empty."""
    return {key: list(parts[key]) for key in _KEYS if parts.get(key)}


def simplified(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec with each thing once and sorted, and nothing in a device that all have, unless it would have nothing."""
    common = _tidied(spec["containerEdits"])
    devices = []
    for device in spec["devices"]:
        whole = _tidied(device["containerEdits"])
        own = {
            key: [each for each in part if key not in _SHARED or each not in common.get(key, ())]
            for key, part in whole.items()
        }
        is_left = any(own.get(key) for key in _SHARED)
        devices.append({**device, "containerEdits": edits_of(**own) if is_left else whole})
    devices.sort(key=lambda device: str(device["name"]))
    return {**spec, "devices": devices, "containerEdits": common}


def with_merged(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """A spec with one more device, which has what all others have; the same when one has that name already."""
    if any(device["name"] == name for device in spec["devices"]):
        return spec
    every = [device["containerEdits"] for device in spec["devices"]]
    merged = edits_of(**{key: [each for edits in every for each in edits.get(key, ())] for key in _KEYS})
    return simplified({**spec, "devices": [*spec["devices"], {"name": name, "containerEdits": merged}]})


def _tidied(edits: dict[str, Any]) -> dict[str, Any]:
    """Each thing once; nodes and mounts by their place in the container, groups by number."""
    made = {key: [each for at, each in enumerate(part) if each not in part[:at]] for key, part in edits.items()}
    if "deviceNodes" in made:
        made["deviceNodes"].sort(key=lambda node: by_depth(node["path"]))
    if "mounts" in made:
        made["mounts"].sort(key=lambda mount: by_depth(mount["containerPath"]))
    if "additionalGids" in made:
        made["additionalGids"].sort()
    return edits_of(**made)


def minimum_version(spec: dict[str, Any]) -> str:
    """The oldest version that can say what a spec says; 0.3.0 is the oldest that the program writes."""
    every = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    if any("additionalGids" in edits for edits in every):
        return "0.7.0"
    has_host_path = any("hostPath" in node for edits in every for node in edits.get("deviceNodes", ()))
    return "0.5.0" if has_host_path or any(device["name"][0].isdigit() for device in spec["devices"]) else "0.3.0"


def require_valid(spec: dict[str, Any]) -> None:
    """Look at a spec as who writes it does.

    Raises:
        GenerateError: a device twice, or one without anything.
    """
    names: set[str] = set()
    for device in spec["devices"]:
        name = device["name"]
        if not device["containerEdits"]:
            raise GenerateError(f'invalid CDI Spec: failed add device "{name}": invalid device, empty device edits')
        if name in names:
            raise GenerateError(f'invalid CDI Spec: invalid spec, multiple device "{name}"')
        names.add(name)


def by_depth(path: str) -> tuple[int, str]:
    """The order of nodes and mounts."""
    return path.count("/"), path


def joined(root: str, path: str) -> str:
    """A path below a root."""
    return f"{root.rstrip('/')}{path}"


def found(disk: SimDisk, path: Path, *, follow: bool = True) -> Node | None:
    """What stands at a path; None when nothing that can be seen does."""
    try:
        return disk.find(path, follow=follow)
    except OSError:
        return None
