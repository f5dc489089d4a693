"""Where a driver root has its NVML, and which versions of a driver there are. Names only: nothing is looked at here."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from actors.gpu.driver_folders import FURTHER, NVML, SEARCHED

_MODULE: Final = re.compile(r"^NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)(?:\s|$)", re.ASCII | re.MULTILINE)


def candidates(driver_root: str) -> tuple[str, ...]:
    """Where NVML may be below a driver root, the likeliest place first."""
    return tuple(posixpath.join(driver_root, directory, NVML) for directory in (*SEARCHED, *FURTHER))


def library_version(path: str) -> str:
    """The version in the name of a library's file, `libnvidia-ml.so.580.65.06`; empty when there is none."""
    _, _, version = posixpath.basename(path).partition(".so.")
    return version if "." in version else ""


def module_version(text: str) -> str:
    """The version of the loaded module, as /proc/driver/nvidia/version tells it; empty when it does not."""
    found = _MODULE.search(text)
    return "" if found is None else found[1]
