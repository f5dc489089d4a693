"""The real tools of others, built from their Go modules by scripts/build-go: once, and kept below build/."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Final

from tests.needs import ROOT, Tool, cannot, need

_BUILD_BOUND_S: Final = 1260


def nvidia_ctk() -> Path:
    """The real nvidia-ctk of the release that scripts/go/toolkit names."""
    return _built("toolkit") / "nvidia-ctk"


def runsc() -> Path:
    """A current runsc, of the commit that scripts/go/gvisor names; its first build takes minutes."""
    return _built("gvisor") / "runsc"


def nvidia_cdi_hook() -> Path:
    """The real nvidia-cdi-hook that belongs to it."""
    return _built("toolkit") / "nvidia-cdi-hook"


def kustomize() -> Path:
    """The kustomize of the release that scripts/go/kustomize names."""
    return _built("kustomize") / "kustomize"


@functools.cache
def _built(name: str) -> Path:
    need(Tool.GO, Tool.COMPILER)
    argv = [str(ROOT / "scripts" / "build-go"), name]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=_BUILD_BOUND_S, check=False)
    if ended.returncode != 0:
        cannot(f"scripts/build-go {name}: {ended.stderr[-2000:]}")
    return Path(ended.stdout.strip())
