"""The real tools of others, built from their Go modules by scripts/build-go: once, and kept below build/."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Final

import attrs

from tests.needs import ROOT, Tool, cannot, need

_BUILD_BOUND_S: Final = 540
"""Below the 600 s (pyproject.toml) after which one test that hangs ends the whole run."""
_BUILD_OF_GVISOR_BOUND_S: Final = 1260
"""Only the campaign builds it, which has more time."""


def nvidia_ctk() -> Path:
    """The real nvidia-ctk of the release that scripts/go/toolkit names."""
    return _built("toolkit") / "nvidia-ctk"


def runsc() -> Path:
    """A current runsc, of the commit that scripts/go/gvisor names; its first build takes minutes."""
    return _built("gvisor", within_s=_BUILD_OF_GVISOR_BOUND_S) / "runsc"


def nvidia_cdi_hook() -> Path:
    """The real nvidia-cdi-hook that belongs to it."""
    return _built("toolkit") / "nvidia-cdi-hook"


def kustomize() -> Path:
    """The kustomize of the release that scripts/go/kustomize names."""
    return _built("kustomize") / "kustomize"


@attrs.frozen
class _Failed:
    message: str


def _built(name: str, *, within_s: int = _BUILD_BOUND_S) -> Path:
    need(Tool.GO, Tool.COMPILER)
    built = _build(name, within_s)
    if isinstance(built, _Failed):
        cannot(f"scripts/build-go {name}: {built.message}")
    return built


@functools.cache
def _build(name: str, within_s: int) -> Path | _Failed:
    """Build it once in a test session; what failed once is not tried by each test again."""
    argv = [str(ROOT / "scripts" / "build-go"), name]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired:
        return _Failed(f"not built within {within_s} s")
    if ended.returncode != 0:
        return _Failed(ended.stderr[-2000:])
    return Path(ended.stdout.strip())
