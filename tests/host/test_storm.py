"""Case 020: the exit codes of our own children beside orphans and a library that forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.needs import Tool, need

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
AS_PID_1: Final = ("unshare", "--fork", "--pid", "--kill-child", "--mount-proc")


def run_storm(*prefix: str, backend: str, children: int, forks: int, orphans: int) -> dict[str, Any]:
    numbers = map(str, (children, forks, orphans))
    argv = [*prefix, sys.executable, "-m", "tests.host.storm", backend, *numbers]
    finished = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=570, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    result: dict[str, Any] = json.loads(finished.stdout)
    assert (result["wrong"], result["zombies"], result["leakedDescriptors"]) == ([], 0, 0)
    return result


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("prefix", [(), AS_PID_1], ids=["subreaper", "PID 1"])
def test_all_codes_are_right_while_orphans_end_and_a_library_forks(backend: str, prefix: tuple[str, ...]):
    if prefix:
        need(Tool.ROOT, Tool.UNSHARE, Tool.NAMESPACES)
    result = run_storm(*prefix, backend=backend, children=300, forks=30, orphans=300)
    assert (result["libraryKept"], result["stopped"]) == (30, -9)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_3000_children_are_no_different(backend: str):
    result = run_storm(backend=backend, children=3000, forks=300, orphans=3000)
    assert result["libraryKept"] == 300


@pytest.mark.long
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_10000_orphans_beside_200_children_with_known_codes(backend: str):
    """As PID 1, with one child that is waited for all the time, and that is stopped."""
    need(Tool.ROOT, Tool.UNSHARE, Tool.NAMESPACES)
    result = run_storm(*AS_PID_1, backend=backend, children=200, forks=30, orphans=10_000)
    assert (result["libraryKept"], result["stopped"]) == (30, -9)
    assert result["reaped"] >= 10_000
