"""The ports together: what they bring along, and that nothing of them stays."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from supervisor.host.composition import open_host_ports
from supervisor.host.wall import HostWall

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
ALL_PORTS: Final = """
import sys, pathlib, anyio
from supervisor.host.composition import open_host_ports

async def main():
    root = pathlib.Path(sys.argv[2])
    async with open_host_ports(roots=[root]) as ports, ports.watch.changes(root), ports.net.listen_unix(root / "s"):
        await ports.files.replace(root / "file", b"1")
        await ports.processes.run(["/bin/true"], deadline_s=30, env={})
        with open("/proc/self/smaps_rollup") as file:
            print(next(line.split()[1] for line in file if line.startswith("Pss:")))

anyio.run(main, backend=sys.argv[1])
print(*sorted(name for name in ("trio", "asyncio") if name in sys.modules))
"""


def test_on_asyncio_trio_is_not_loaded_and_memory_is_small(tmp_path: Path):
    argv = [sys.executable, "-c", ALL_PORTS, "asyncio", str(tmp_path)]
    finished = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=True)
    pss_kib, backends = finished.stdout.splitlines()
    assert backends == "asyncio"
    assert int(pss_kib) < 35 << 10


@pytest.mark.anyio
async def test_an_exception_of_the_body_comes_out_as_it_is(anyio_backend: str):
    with pytest.raises(ZeroDivisionError):
        async with open_host_ports(roots=[]):
            raise ZeroDivisionError


@pytest.mark.anyio
async def test_no_thread_of_the_watch_stays(anyio_backend: str, tmp_path: Path):
    async with open_host_ports(roots=[tmp_path]) as ports:
        async with ports.watch.changes(tmp_path):
            during = threading.active_count()
        assert threading.active_count() <= during


def test_the_wall_tells_what_the_machine_says():
    wall = HostWall()
    assert abs(wall.now_s() - time.time()) < 5
    assert wall.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ids = {wall.fresh_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(found) == 16 and int(found, 16) >= 0 for found in ids)
