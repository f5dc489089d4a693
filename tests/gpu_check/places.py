"""Where things are on the machine that is looked at, and what one check hands to the next."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .commands import CheckError, Clock
from .package import Package

PATH: Final = "/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GPU_NODE: Final = re.compile(r"nvidia(\d+)")


@dataclass(frozen=True, kw_only=True)
class Places:
    """The machine's roots, as Greenroom is told them."""

    dev_root: Path = Path("/")
    driver_root: Path = Path("/")
    proc_root: Path = Path("/proc")
    nvidia_smi: str = "nvidia-smi"

    def gpu_minors(self) -> tuple[int, ...]:
        """The minors of the GPUs whose nodes are here."""
        try:
            names = [path.name for path in (self.dev_root / "dev").iterdir()]
        except OSError:
            return ()
        found = [int(match[1]) for match in map(_GPU_NODE.fullmatch, names) if match]
        return tuple(sorted(minor for minor in found if self._is_device(minor)))

    def _is_device(self, minor: int) -> bool:
        return stat.S_ISCHR((self.dev_root / f"dev/nvidia{minor}").lstat().st_mode)

    def flags(self) -> list[str]:
        """As Greenroom's commands take them."""
        return [f"--dev-root={self.dev_root}", f"--driver-root={self.driver_root}", f"--proc-root={self.proc_root}"]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as nvidia-smi tells of it."""

    uuid: str
    minor: int
    pci_bus_id: str
    model: str


@dataclass(kw_only=True)
class Bench:
    """What the checks work with, and what those before have found.

    Attributes:
        package: what was carried here.
        places: the machine's roots.
        scratch: a directory of this run's own; it is removed afterwards.
        clock: the time that is left.
        driver: the version, from the check `inventory`.
        gpus: the GPUs, from the check `inventory`.
        spec: the CDI spec, from the check `toolkit`.
        bundle: an OCI bundle with a GPU, from the check `inject`.
    """

    package: Package
    places: Places
    scratch: Path
    clock: Clock
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    spec: Path | None = None
    bundle: Path | None = None
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of every program: nothing of the caller's but the way to the driver's libraries."""
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        own = {"PYTHONPATH": str(self.scratch / "site"), "TMPDIR": str(self.scratch)}
        return {"PATH": PATH, "LANG": "C.UTF-8", **own, **kept}

    def program(self, name: str) -> Path:
        """A program that was carried here."""
        path = self.scratch / "bin" / name
        if not path.exists():
            raise CheckError(f"{name} was not packed: {self.package.missing.get(name, 'it is not in the package')}")
        return path

    def greenroom(self, *words: str | Path) -> list[str]:
        """A command line of Greenroom's."""
        if not (self.scratch / "site/greenroom.py").exists():
            raise CheckError(f"Greenroom was not packed: {self.package.missing.get('greenroom', 'it is not there')}")
        return [sys.executable, "-P", "-m", "greenroom", *map(str, words)]
