"""What is in a package, and how it is unpacked where it is used."""

from __future__ import annotations

import json
import lzma
import platform
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FORMAT: Final = 1
MODULES: Final = (
    "__init__.py", "__main__.py", "checks.py", "commands.py", "container.py", "cuda.py", "package.py", "places.py",
    "reports.py",
)  # fmt: skip
"""The modules that travel."""
PROGRAMS: Final = ("runsc", "nvidia-ctk", "nvidia-cdi-hook")
RUN: Final = """#!/bin/sh
# Checks this machine's GPU with Greenroom: 0 all is well, 1 something is not, 77 not possible here, and why.
# Usage: run [--report FILE] [--dev-root DIR] [--driver-root DIR] [--proc-root DIR] [--only NAME]...
here=$(cd "$(dirname "$0")" && pwd) || exit 1
for python in ${GPU_CHECK_PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        unset PYTHONHOME
        PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 exec "$python" -m gpu_check --package "$here" "$@"
    fi
done
echo "gpu-check: not possible on this machine: there is no Python of 3.11 or newer" >&2
exit 77
"""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package as it arrived.

    Attributes:
        directory: where it is.
        machine: the processor that its programs and wheels are for.
        pythons: the Pythons for which it has wheels.
        missing: what could not be packed, and why.
    """

    directory: Path
    machine: str
    pythons: tuple[str, ...]
    missing: dict[str, str]

    @classmethod
    def at(cls, directory: Path) -> Package:
        described = json.loads((directory / "package.json").read_text())
        if described["v"] != FORMAT:
            message = f"{directory} is a package of format {described['v']}, not {FORMAT}"
            raise ValueError(message)
        return cls(
            directory=directory,
            machine=described["machine"],
            pythons=tuple(described["pythons"]),
            missing=described["missing"],
        )

    def obstacle(self) -> str | None:
        """Why it can be of no use here at all."""
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        if self.machine != platform.machine():
            return f"it was packed for {self.machine}, and this is {platform.machine()}"
        if own not in self.pythons:
            return f"it has wheels for Python {', '.join(self.pythons)}, and this is {own} ({sys.executable})"
        return None

    def unpack(self, directory: Path) -> str:
        """Put all wheels into `directory/site` and all programs into `directory/bin`; returns what is there."""
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        site, programs = directory / "site", directory / "bin"
        programs.mkdir(parents=True)
        wheels = [
            path for name in ("greenroom", "any", own) for path in (self.directory / "wheels" / name).glob("*.whl")
        ]
        for wheel in sorted(wheels):
            _unpack_wheel(wheel, site)
        packed = sorted((self.directory / "programs").glob("*.xz"))
        for each in packed:
            program = programs / each.stem
            program.write_bytes(lzma.decompress(each.read_bytes()))
            program.chmod(0o755)
        return f"{len(wheels)} wheels for Python {own}, and {', '.join(each.stem for each in packed) or 'no program'}"


def _unpack_wheel(wheel: Path, site: Path) -> None:
    """A wheel is a zip file of what belongs into site-packages; what is of a scheme of its own is left out."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.split("/")[0].endswith(".data")]
        archive.extractall(site, members=names)
