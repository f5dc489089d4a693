"""The CDI spec that nvidia-ctk 1.20 makes of what it finds: devices from NVML and /dev, common edits from the disk.

Its order, keys and omissions are those of the real program, measured with version 1.20.0 on a driver root without
graphics files. Not modelled: DRM nodes, sockets, firmware, graphics files, MIG instances.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.world.nodes import Regular, Special, SpecialNode, Symlink
from sim.world.nvml import TEXTS, NvmlError, Return

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.world.disk import SimDisk
    from sim.world.nodes import Node
    from sim.world.nvml import Handle, Nvml

_CONTROL_NODES: Final = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
_BINARIES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_BINARY_FOLDERS: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_LIBRARY_FOLDERS: Final = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/lib64", "/lib/x86_64-linux-gnu")
_MOUNT_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_NVML: Final = "libnvidia-ml.so.1"
_ALL: Final = "all"
_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIG_INDEX: Final = re.compile(r"\d+:\d+", re.ASCII)


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


def find_nvml(disk: SimDisk, request: Request) -> Path | None:
    """The library that will be loaded."""
    candidates = (*request.library_folders, *(_join(request.driver_root, folder) for folder in _LIBRARY_FOLDERS))
    return next((Path(folder) / _NVML for folder in candidates if _find(disk, Path(folder) / _NVML)), None)


class Generation:
    """One spec in the making.

    Args:
        disk: what is looked at.
        nvml: the library, loaded.
        library: where it was found.
        say: takes what is logged on the way: a level and a text.
    """

    def __init__(
        self, disk: SimDisk, nvml: Nvml, library: Path, request: Request, say: Callable[[str, str], None]
    ) -> None:
        self._disk = disk
        self._nvml = nvml
        self._library = library
        self._request = request
        self._say = say

    def make(self) -> dict[str, Any]:
        """Look at everything and return the spec.

        Raises:
            GenerateError: no spec that anybody may use.
            NvmlHangs, NvmlCrashes: as the library does.
        """
        gpus = self._gpus()
        devices = [each for gpu in gpus for each in self._devices_of(gpu)]
        nodes = self._merged(devices)
        devices.sort(key=lambda device: str(device["name"]))
        if self._request.has_all_device:
            devices.append({"name": _ALL, "containerEdits": {"deviceNodes": nodes}})
            devices.sort(key=lambda device: str(device["name"]))
        edits = self._common_edits()
        version = "0.5.0" if _needs_newer(devices, edits) else "0.3.0"
        return {"cdiVersion": version, "kind": self._request.kind, "devices": devices, "containerEdits": edits}

    # ---- devices

    def _gpus(self) -> list[tuple[int, str, str]]:
        """Index, UUID and node of each GPU that is asked for."""
        where = "failed to generate CDI spec: failed to create device CDI specs: "
        constructing = f"{where}failed to construct device spec generators: "
        _ask(f"{constructing}failed to initialize NVML", self._nvml.init)
        chosen = list(self._chosen(constructing) if self._request.ids else self._every(constructing))
        found = []
        for handle, uuid in chosen:
            edits = f"{where}failed to get CDI device edits: failed to create device discoverer: "
            discovering = f"{edits}failed to create device discoverer: "
            asked = f"{discovering}error getting device node path: error getting GPU device minor number"
            minor = _ask(asked, self._nvml.minor, handle)
            asked = f"{discovering}error getting PCI info for device: error getting PCI info"
            _ask(asked, self._nvml.pci_bus_id, handle)
            index = _ask(f"{where}failed to get device index", self._nvml.index, handle)
            found.append((index, uuid, f"nvidia{minor}"))
        return found

    def _every(self, constructing: str) -> Iterator[tuple[Handle, str]]:
        """Every GPU but those in MIG mode, which stand for their instances."""
        visiting = f"{constructing}failed to get full GPU device editors: "
        for index in range(_ask(f"{visiting}error getting device count", self._nvml.count)):
            text = f"{visiting}error getting device handle for index '{index}'"
            handle = _ask(text, self._nvml.handle_by_index, index)
            text = f"{visiting}error visiting device: error getting MIG mode"
            if not self._is_in_mig_mode(text, handle):
                text = f"{visiting}error visiting device: failed to get device UUID"
                yield handle, _ask(text, self._nvml.uuid, handle)

    def _is_in_mig_mode(self, text: str, handle: Handle) -> bool:
        try:
            return self._nvml.mig_mode(handle)[0] == 1
        except NvmlError as error:
            if error.code is Return.NOT_SUPPORTED:
                return False
            raise GenerateError(f"{text}: {error}") from None

    def _chosen(self, constructing: str) -> Iterator[tuple[Handle, str]]:
        for name in self._request.ids:
            if name.isascii() and name.isdecimal():
                text = f"{constructing}failed to get device handle from index"
                handle = _ask(text, self._nvml.handle_by_index, int(name))
            elif _UUID.fullmatch(name):
                text = f"{constructing}failed to get device handle from UUID"
                handle = _ask(text, self._nvml.handle_by_uuid, name)
            elif _MIG_INDEX.fullmatch(name):
                raise GenerateError(f"{constructing}failed to get MIG handle by index: {TEXTS[Return.NOT_FOUND]}")
            else:
                raise GenerateError(f'{constructing}identifier is not a valid UUID or index: "{name}"')
            text = f"{constructing}failed to get device UUID"
            yield handle, _ask(text, self._nvml.uuid, handle)

    def _devices_of(self, gpu: tuple[int, str, str]) -> Iterator[dict[str, Any]]:
        index, uuid, name = gpu
        names = {"index": str(index), "uuid": uuid, "type-index": f"gpu{index}"}
        node = self._node(name)
        edits = {} if node is None else {"deviceNodes": [node]}
        for strategy in self._request.strategies:
            yield {"name": names[strategy], "containerEdits": edits}

    def _merged(self, devices: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The nodes of all devices, each once."""
        nodes = {node["path"]: node for device in devices for node in device["containerEdits"].get("deviceNodes", ())}
        return [nodes[path] for path in sorted(nodes)]

    def _node(self, name: str) -> dict[str, Any] | None:
        """A node as the host has it; what is no character device is as good as absent."""
        path = f"/dev/{name}"
        where = _join(self._request.dev_root, path)
        node = _find(self._disk, Path(where))
        if not isinstance(node, SpecialNode) or node.special is not Special.CHARACTER_DEVICE or node.device is None:
            self._say("warning", f"Could not locate {path}: {path}: not found")
            return None
        self._say("info", f"Selecting {where} as {path}")
        major, minor = node.device
        told = {"path": path, "hostPath": where, "major": major, "minor": minor, "fileMode": node.mode & 0o777}
        if where == path:
            del told["hostPath"]
        if minor == 0:
            del told["minor"]
        return {**told, "permissions": "rwm"}

    # ---- what every device shares

    def _common_edits(self) -> dict[str, Any]:
        version = self._driver_version()
        self._say("info", f"Using driver version {version}")
        folder = self._library.parent
        libraries = [folder / name for name in self._names(folder) if name.endswith(f".so.{version}")]
        nodes = [node for name in _CONTROL_NODES if (node := self._node(name)) is not None]
        edits: dict[str, Any] = {
            "env": [f"NVIDIA_CTK_LIBCUDA_DIR={self._inside(str(folder))}", "NVIDIA_VISIBLE_DEVICES=void"]
        }
        if nodes:
            edits["deviceNodes"] = nodes
        hooks = [
            hook for hook in self._hooks(version, libraries) if hook["args"][1] not in self._request.disabled_hooks
        ]
        if hooks and "all" not in self._request.disabled_hooks:
            edits["hooks"] = hooks
        mounts = sorted((*self._binaries(), *map(str, libraries)), key=lambda path: _by_depth(self._inside(path)))
        if mounts:
            edits["mounts"] = [
                {"hostPath": path, "containerPath": self._inside(path), "options": list(_MOUNT_OPTIONS)}
                for path in mounts
            ]
        return edits

    def _driver_version(self) -> str:
        """What NVML says, else what the name of its file says."""
        try:
            return self._nvml.driver_version()
        except NvmlError as error:
            self._say("warning", f"Could not determine driver version: {error}")
            return self._disk.find(self._library).name.partition(".so.")[2]

    def _hooks(self, version: str, libraries: Sequence[Path]) -> Iterator[dict[str, Any]]:
        links = [part for library in libraries for link in self._links(library) for part in ("--link", link)]
        if links:
            yield self._hook("create-symlinks", *links)
        yield self._hook("enable-cuda-compat", f"--host-driver-version={version}")
        if libraries:
            told = ("--ldconfig-path", self._request.ldconfig) if self._request.ldconfig else ()
            yield self._hook("update-ldcache", *told, "--folder", self._inside(str(self._library.parent)))
        yield self._hook("disable-device-node-modification")
        yield self._hook("update-application-profile")

    def _hook(self, name: str, *arguments: str) -> dict[str, Any]:
        return {
            "hookName": "createContainer",
            "path": self._request.hook,
            "args": [posixpath.basename(self._request.hook), name, *arguments],
            "env": ["NVIDIA_CTK_DEBUG=false"],
        }

    def _links(self, library: Path) -> Iterator[str]:
        """The links that lead to a library here, as `target::link`; the one to libcuda's SONAME even if it does not."""
        short = library.name.partition(".so.")[0] + ".so"
        soname = f"{short}.1"
        folder = self._inside(str(library.parent))
        if short == "libcuda.so":
            yield f"{soname}::{folder}/{short}"
        if isinstance(_find(self._disk, library.parent / soname, follow=False), Symlink):
            yield f"{library.name}::{folder}/{soname}"
        if short != "libcuda.so" and isinstance(_find(self._disk, library.parent / short, follow=False), Symlink):
            yield f"{soname}::{folder}/{short}"

    def _binaries(self) -> Iterator[str]:
        folders = (*self._request.binary_folders, *(_join(self._request.driver_root, each) for each in _BINARY_FOLDERS))
        for name in _BINARIES:
            found = next((path for folder in folders if _is_program(self._disk, path := f"{folder}/{name}")), None)
            if found is None:
                self._say("warning", f"Could not locate {name}: {name}: not found")
            else:
                self._say("info", f"Selecting {found} as {self._inside(found)}")
                yield found

    def _names(self, folder: Path) -> list[str]:
        return sorted(self._disk.names(self._disk.find_directory(folder)))

    def _inside(self, path: str) -> str:
        """The path in a container: what is below the driver root is below the root there."""
        root = self._request.driver_root.rstrip("/")
        return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _ask(text: str, question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask NVML; what it says no to is what the program ends with."""
    try:
        return question(*arguments)
    except NvmlError as error:
        raise GenerateError(f"{text}: {error}") from None


def require_valid(spec: dict[str, Any]) -> None:
    """Look at a spec as who writes it does.

    Raises:
        GenerateError: a device twice, or one without anything.
    """
    names: set[str] = set()
    for device in spec["devices"]:
        name = device["name"]
        if not device["containerEdits"].get("deviceNodes"):
            raise GenerateError(f'invalid CDI Spec: failed add device "{name}": invalid device, empty device edits')
        if name in names:
            raise GenerateError(f'invalid CDI Spec: invalid spec, multiple device "{name}"')
        names.add(name)


def _needs_newer(devices: Sequence[dict[str, Any]], edits: dict[str, Any]) -> bool:
    """Whether the oldest version that the program writes, 0.3.0, cannot say it."""
    nodes = [node for device in devices for node in device["containerEdits"].get("deviceNodes", ())]
    nodes += edits.get("deviceNodes", ())
    return any(device["name"][0].isdigit() for device in devices) or any("hostPath" in node for node in nodes)


def _by_depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _join(root: str, path: str) -> str:
    return f"{root.rstrip('/')}{path}"


def _find(disk: SimDisk, path: Path, *, follow: bool = True) -> Node | None:
    try:
        return disk.find(path, follow=follow)
    except OSError:
        return None


def _is_program(disk: SimDisk, path: str) -> bool:
    node = _find(disk, Path(path))
    return isinstance(node, Regular) and bool(node.mode & 0o111)
