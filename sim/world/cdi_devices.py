"""The devices of a CDI spec as nvidia-ctk 1.20 finds them: GPUs and instances from NVML, their nodes from the disk."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.world.cdi_edits import GenerateError, Nodes, edits_of, found, joined
from sim.world.nodes import Directory, Regular, Symlink
from sim.world.nvml import TEXTS, NvmlError, Return

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sim.world.cdi_edits import Request
    from sim.world.disk import SimDisk
    from sim.world.gpus import MigInstance
    from sim.world.nvml import Handle, Nvml

_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIG_INDEX: Final = re.compile(r"(\d+):(\d+)", re.ASCII)
_MIG_MINORS: Final = Path("/proc/driver/nvidia-caps/mig-minors")
_DRM: Final = Path("/sys/bus/pci/devices")
"""Both below no root that is asked for, as in the real program."""
_NONE: Final = "none"
_FAILING: Final = "failed to generate CDI spec: failed to create device CDI specs: "
_CONSTRUCTING: Final = f"{_FAILING}failed to construct device spec generators: "
_DISCOVERING: Final = f"{_FAILING}failed to get CDI device edits: failed to create device discoverer: "


@attrs.frozen(kw_only=True)
class _Found:
    """A GPU or an instance of one: its names by strategy, its GPU, and which instance it is."""

    names: Mapping[str, str]
    handle: Handle
    instance: MigInstance | None = None


class Devices:
    """The devices that are asked for.

    Args:
        disk: what is looked at.
        nvml: the library, loaded.
        say: takes what is logged on the way: a level and a text.
    """

    def __init__(self, disk: SimDisk, nvml: Nvml, request: Request, say: Callable[[str, str], None]) -> None:
        self._disk = disk
        self._nvml = nvml
        self._request = request
        self._say = say
        self._nodes = Nodes(disk, request, say)

    def make(self) -> Iterator[dict[str, Any]]:
        """Each device under each of its names.

        Raises:
            GenerateError: NVML refuses, or there is no such device.
            NvmlHangs, NvmlCrashes: as the library does.
        """
        _ask(f"{_CONSTRUCTING}failed to initialize NVML", self._nvml.init)
        if _NONE in self._request.ids:
            yield {"name": _NONE, "containerEdits": edits_of(env=["NVCT_EMPTY_DEVICE="])}
            return
        for each in list(self._chosen() if self._request.ids else self._every()):
            edits = self._edits(each)
            for strategy in self._request.strategies:
                yield {"name": each.names[strategy], "containerEdits": edits}

    # ---- which

    def _every(self) -> Iterator[_Found]:
        """Every GPU but those in MIG mode, and then those GPUs' instances."""
        visiting = f"{_CONSTRUCTING}failed to get full GPU device editors: "
        split = list[tuple[int, Any]]()
        for index in range(_ask(f"{visiting}error getting device count", self._nvml.count)):
            text = f"{visiting}error getting device handle for index '{index}'"
            handle = _ask(text, self._nvml.handle_by_index, index)
            text = f"{visiting}error visiting device: error getting MIG mode"
            if self._is_in_mig_mode(text, handle):
                split.append((index, handle))
            else:
                text = f"{visiting}error visiting device: failed to get device UUID"
                yield _gpu(index, _ask(text, self._nvml.uuid, handle), handle)
        visiting = f"{_CONSTRUCTING}failed to get MIG device editors: error getting MIG device handle"
        for index, handle in split:
            for position, instance in enumerate(_ask(visiting, self._nvml.mig_instances, handle)):
                yield _mig(index, position, instance, handle)

    def _is_in_mig_mode(self, text: str, handle: Handle) -> bool:
        try:
            return self._nvml.mig_mode(handle)[0] == 1
        except NvmlError as error:
            if error.code is Return.NOT_SUPPORTED:
                return False
            raise GenerateError(f"{text}: {error}") from None

    def _chosen(self) -> Iterator[_Found]:
        for name in self._request.ids:
            if name.isascii() and name.isdecimal():
                text = f"{_CONSTRUCTING}failed to get device handle from index"
                yield self._chosen_gpu(_ask(text, self._nvml.handle_by_index, int(name)))
            elif _UUID.fullmatch(name) and name.startswith("MIG-"):
                yield self._chosen_instance(name)
            elif _UUID.fullmatch(name):
                text = f"{_CONSTRUCTING}failed to get device handle from UUID"
                yield self._chosen_gpu(_ask(text, self._nvml.handle_by_uuid, name))
            elif (pair := _MIG_INDEX.fullmatch(name)) is not None:
                text = f"{_CONSTRUCTING}failed to get parent device handle"
                handle = _ask(text, self._nvml.handle_by_index, int(pair[1]))
                yield self._instance_at(int(pair[1]), int(pair[2]), handle)
            else:
                raise GenerateError(f'{_CONSTRUCTING}identifier is not a valid UUID or index: "{name}"')

    def _chosen_gpu(self, handle: Handle) -> _Found:
        uuid = _ask(f"{_CONSTRUCTING}failed to get device UUID", self._nvml.uuid, handle)
        return _gpu(_ask(f"{_FAILING}failed to get device index", self._nvml.index, handle), uuid, handle)

    def _instance_at(self, index: int, position: int, handle: Handle) -> _Found:
        failing = f"{_CONSTRUCTING}failed to get MIG handle by index"
        instances = _ask(failing, self._nvml.mig_instances, handle)
        if position >= len(instances):
            raise GenerateError(f"{failing}: {TEXTS[Return.NOT_FOUND]}")
        return _mig(index, position, instances[position], handle)

    def _chosen_instance(self, uuid: str) -> _Found:
        failing = f"{_CONSTRUCTING}failed to get device handle from UUID"
        for index in range(_ask(failing, self._nvml.count)):
            handle = _ask(failing, self._nvml.handle_by_index, index)
            for position, instance in enumerate(_ask(failing, self._nvml.mig_instances, handle)):
                if instance.uuid == uuid:
                    return _mig(index, position, instance, handle)
        raise GenerateError(f"{failing}: {TEXTS[Return.NOT_FOUND]}")

    # ---- what is in them

    def _edits(self, each: _Found) -> dict[str, Any]:
        asking = "error getting GPU device minor number"
        if each.instance is not None:
            minor = _ask(f"{_DISCOVERING}{asking}", self._nvml.minor, each.handle)
            return self._nodes.edits([f"/dev/nvidia{minor}", *self._capabilities(minor, each.instance)])
        failing = f"{_DISCOVERING}failed to create device discoverer: "
        minor = _ask(f"{failing}error getting device node path: {asking}", self._nvml.minor, each.handle)
        asked = f"{failing}error getting PCI info for device: error getting PCI info"
        bus = _ask(asked, self._nvml.pci_bus_id, each.handle)[4:].lower()
        edits = self._nodes.edits([f"/dev/nvidia{minor}", *self._drm_nodes(bus)])
        links = [part for link in self._links_by_path(bus, edits) for part in ("--link", link)]
        return edits_of(**edits, hooks=self._request.made_hook("create-symlinks", *links) if links else ())

    def _capabilities(self, minor: int, instance: MigInstance) -> Iterator[str]:
        """The nodes with which an instance is opened, by the numbers that the module gave them."""
        file = found(self._disk, _MIG_MINORS)
        if not isinstance(file, Regular):
            raise GenerateError(f"{_DISCOVERING}error getting MIG capability device paths: <nil>")
        numbers = dict(line.split(" ") for line in bytes(file.content).decode().splitlines())
        for what, name in zip(("GI", "CI"), instance.capabilities(minor), strict=True):
            if name not in numbers:
                text = f"failed to get {what} cap device path: invalid MIG capability path {name}"
                raise GenerateError(f"{_DISCOVERING}{text}")
            yield f"/dev/nvidia-caps/nvidia-cap{numbers[name]}"

    def _drm_nodes(self, bus: str) -> Iterable[str]:
        folder = found(self._disk, _DRM / bus / "drm")
        names = sorted(self._disk.names(folder)) if isinstance(folder, Directory) else []
        return [f"/dev/dri/{name}" for name in names]

    def _links_by_path(self, bus: str, edits: dict[str, Any]) -> Iterator[str]:
        """The links below `by-path` to nodes that are there. The link's place keeps its root, as in the real one."""
        there = {node.get("hostPath", node["path"]) for node in edits.get("deviceNodes", ())}
        for what in ("card", "render") if there else ():
            link = joined(self._request.dev_root, f"/dev/dri/by-path/pci-{bus}-{what}")
            node = found(self._disk, Path(link), follow=False)
            if not isinstance(node, Symlink):
                self._say("warning", f"Failed to evaluate symlink {link}; ignoring")
            elif posixpath.normpath(posixpath.join(posixpath.dirname(link), node.target)) in there:
                yield f"{node.target}::{link}"


def _gpu(index: int, uuid: str, handle: Handle) -> _Found:
    return _Found(names={"index": f"{index}", "uuid": uuid, "type-index": f"gpu{index}"}, handle=handle)


def _mig(index: int, position: int, instance: MigInstance, handle: Handle) -> _Found:
    place = f"{index}:{position}"
    names = {"index": place, "uuid": instance.uuid, "type-index": f"mig{place}"}
    return _Found(names=names, handle=handle, instance=instance)


def _ask(text: str, question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask NVML; what it says no to is what the program ends with."""
    try:
        return question(*arguments)
    except NvmlError as error:
        raise GenerateError(f"{text}: {error}") from None
