"""The CDI spec that nvidia-ctk 1.20 makes of what it finds: devices from NVML and /dev, common edits from the disk.

Its order, keys and omissions are those of the real program, measured with version 1.20.0 on a driver root without
graphics files. Not modelled: sockets, firmware, graphics files, DRM nodes of instances.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sim.world.cdi_devices import Devices
from sim.world.cdi_edits import Nodes, edits_of, found, joined, minimum_version, simplified, with_merged
from sim.world.nodes import Regular, Symlink
from sim.world.nvml import NvmlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.world.cdi_edits import Request
    from sim.world.disk import SimDisk
    from sim.world.nvml import Nvml

_CONTROL_NODES: Final = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl")
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


def find_nvml(disk: SimDisk, request: Request) -> Path | None:
    """The library that will be loaded."""
    candidates = (*request.library_folders, *(joined(request.driver_root, folder) for folder in _LIBRARY_FOLDERS))
    return next((Path(folder) / _NVML for folder in candidates if found(disk, Path(folder) / _NVML)), None)


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
        devices = list(Devices(self._disk, self._nvml, self._request, self._say).make())
        spec = {"cdiVersion": "", "kind": self._request.kind, "devices": devices, "containerEdits": self._common()}
        made = simplified(spec)
        if self._request.has_all_device:
            made = with_merged(made, _ALL)
        return {**made, "cdiVersion": minimum_version(made)}

    # ---- what every device shares

    def _common(self) -> dict[str, Any]:
        version = self._driver_version()
        self._say("info", f"Using driver version {version}")
        folder = self._library.parent
        libraries = [folder / name for name in self._names(folder) if name.endswith(f".so.{version}")]
        return edits_of(
            **Nodes(self._disk, self._request, self._say).edits(_CONTROL_NODES),
            env=[f"NVIDIA_CTK_LIBCUDA_DIR={self._inside(str(folder))}", "NVIDIA_VISIBLE_DEVICES=void"],
            hooks=list(self._hooks(version, libraries)),
            mounts=[
                {"hostPath": path, "containerPath": self._inside(path), "options": list(_MOUNT_OPTIONS)}
                for path in (*self._binaries(), *map(str, libraries))
            ],
        )

    def _driver_version(self) -> str:
        """What NVML says, else what the name of its file says."""
        try:
            return self._nvml.driver_version()
        except NvmlError as error:
            self._say("warning", f"Could not determine driver version: {error}")
            return self._disk.find(self._library).name.partition(".so.")[2]

    def _hooks(self, version: str, libraries: Sequence[Path]) -> Iterator[dict[str, Any]]:
        hook = self._request.made_hook
        links = [part for library in libraries for link in self._links(library) for part in ("--link", link)]
        if links:
            yield from hook("create-symlinks", *links)
        yield from hook("enable-cuda-compat", f"--host-driver-version={version}")
        if libraries:
            told = ("--ldconfig-path", self._request.ldconfig) if self._request.ldconfig else ()
            yield from hook("update-ldcache", *told, "--folder", self._inside(str(self._library.parent)))
        yield from hook("disable-device-node-modification")
        yield from hook("update-application-profile")

    def _links(self, library: Path) -> Iterator[str]:
        """The links that lead to a library here, as `target::link`; the one to libcuda's SONAME even if it does not."""
        short = library.name.partition(".so.")[0] + ".so"
        soname = self._soname(library, short)
        folder = self._inside(str(library.parent))
        if short == "libcuda.so":
            yield f"{soname}::{folder}/{short}"
        if isinstance(found(self._disk, library.parent / soname, follow=False), Symlink):
            yield f"{library.name}::{folder}/{soname}"
        if short != "libcuda.so" and isinstance(found(self._disk, library.parent / short, follow=False), Symlink):
            yield f"{soname}::{folder}/{short}"

    def _soname(self, library: Path, short: str) -> str:
        """The model's libraries have no SONAME to read: the numbered link that leads to one has its name, mostly 1."""
        for name in self._names(library.parent):
            link = found(self._disk, library.parent / name, follow=False)
            if name.startswith(f"{short}.") and isinstance(link, Symlink) and link.target == library.name:
                return name
        return f"{short}.1"

    def _binaries(self) -> Iterator[str]:
        folders = (
            *self._request.binary_folders,
            *(joined(self._request.driver_root, each) for each in _BINARY_FOLDERS),
        )
        for name in _BINARIES:
            there = next((path for folder in folders if _is_program(self._disk, path := f"{folder}/{name}")), None)
            if there is None:
                self._say("warning", f"Could not locate {name}: {name}: not found")
            else:
                self._say("info", f"Selecting {there} as {self._inside(there)}")
                yield there

    def _names(self, folder: Path) -> list[str]:
        return sorted(self._disk.names(self._disk.find_directory(folder)))

    def _inside(self, path: str) -> str:
        """The path in a container: what is below the driver root is below the root there."""
        root = self._request.driver_root.rstrip("/")
        return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _is_program(disk: SimDisk, path: str) -> bool:
    node = found(disk, Path(path))
    return isinstance(node, Regular) and bool(node.mode & 0o111)
