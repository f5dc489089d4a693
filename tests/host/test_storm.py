"""The exit codes of 300 children beside orphans and a library that forks; the worst that a reaper can get wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.needs import Tool, need

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
AS_PID_1: Final = ("unshare", "--fork", "--pid", "--mount-proc")


def run_storm(*prefix: str, backend: str, children: int, forks: int) -> dict[str, Any]:
    argv = [*prefix, sys.executable, "-m", "tests.host.storm", backend, str(children), str(forks)]
    finished = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=250, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("prefix", [(), AS_PID_1], ids=["subreaper", "PID 1"])
def test_all_codes_are_right_while_orphans_end_and_a_library_forks(backend: str, prefix: tuple[str, ...]):
    if prefix:
        need(Tool.ROOT, Tool.UNSHARE, Tool.NAMESPACES)
    result = run_storm(*prefix, backend=backend, children=300, forks=30)
    assert result["wrong"] == []
    assert (result["libraryKept"], result["zombies"], result["stopped"]) == (30, 0, -9)
    assert result["orphansGone_s"] < 2


@pytest.mark.long
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_3000_children_are_no_different(backend: str):
    result = run_storm(backend=backend, children=3000, forks=300)
    assert result["wrong"] == []
    assert (result["libraryKept"], result["zombies"]) == (300, 0)
