"""A sandbox of 1 GiB is suspended: what of the time is ours, and that the worker needs no more memory for it.

The time in which a command of runsc runs, or the disk syncs, or files are read to be hashed, is theirs; the rest ours.
"""

import re
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from actors.ports import Ports
from tests.real.gates import Gates
from tests.real.scenery import assignment, counting, running
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc, pytest.mark.bench]

MIB = 1024
"""Of random data, in the overlay of the root file system, which is memory."""
FILLS = f"dd if=/dev/urandom of=/tmp/x bs=1M count={MIB} 2>/dev/null && echo filled; exec sleep 1000"
OWN_SHARE = 0.15
MEMORY_KB = 16 << 10
"""Buffers through which files are hashed, one for each that is."""
LOOK_EVERY_S = 0.02
TRIES = 3


@attrs.define
class Clocked(Gates):
    """Ports that note when a command runs, and when the disk is waited for."""

    runsc: list[tuple[float, float]] = attrs.field(factory=list)
    disk: list[tuple[float, float]] = attrs.field(factory=list)

    def around(self, ports: Ports) -> Ports:
        processes: Any = _Timed(ports.processes, self.runsc, frozenset({"run"}))
        files: Any = _Timed(ports.files, self.disk, frozenset({"sync_tree", "digest"}))
        return attrs.evolve(ports, processes=processes, files=files)


class _Timed:
    def __init__(self, port: Any, spans: list[tuple[float, float]], methods: frozenset[str]) -> None:
        self._port, self._spans, self._methods = port, spans, methods

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        return self._timed(method) if name in self._methods else method

    def _timed(self, method: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            began_s = anyio.current_time()
            try:
                return await method(*args, **options)
            finally:
                self._spans.append((began_s, anyio.current_time()))

        return call


def covered_s(spans, between):
    """Seconds of a stretch of time in which any of these was under way."""
    total_s, until_s = 0.0, between[0]
    for began_s, ended_s in sorted(spans):
        begin_s, end_s = max(began_s, until_s), min(ended_s, between[1])
        if end_s > begin_s:
            total_s, until_s = total_s + end_s - begin_s, end_s
    return total_s


def anonymous_kb():
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


async def _watch_memory(seen):
    while True:
        seen.append(anonymous_kb())
        await anyio.sleep(LOOK_EVERY_S)


async def test_our_own_share_of_suspending_a_gibibyte_is_small_and_so_is_its_memory(tmp_path, rootfs, record_property):
    clocked, shares = Clocked(), []
    async with open_worker(tmp_path, gates=clocked) as worker:
        filled = running("filled", rootfs, "sh", "-c", FILLS)
        await worker.start(assignment("a1", counting("c1", rootfs), filled, terminationGracePeriodSeconds=0))
        await eventually(lambda: worker.lines("a1", "filled"), within_s=120)
        await worker.suspend("a1")  # the first one starts threads
        await worker.resume("a1")
        for _ in range(TRIES):
            clocked.runsc.clear()
            clocked.disk.clear()
            seen = [anonymous_kb()]
            async with anyio.create_task_group() as group:
                group.start_soon(_watch_memory, seen)
                began_s = anyio.current_time()
                await worker.suspend("a1")
                between = began_s, anyio.current_time()
                group.cancel_scope.cancel()
            size_bytes = sum(path.stat().st_size for path in worker.snapshots("a1")[-1].iterdir())
            assert size_bytes > MIB << 20
            lasted_s = between[1] - between[0]
            theirs_s = covered_s([*clocked.runsc, *clocked.disk], between)
            found = {
                "lasted_s": lasted_s,
                "runsc_s": covered_s(clocked.runsc, between),
                "disk_s": covered_s(clocked.disk, between),
                "own_s": lasted_s - theirs_s,
                "share": (lasted_s - theirs_s) / lasted_s,
                "rss_anon_kb_before": seen[0],
                "rss_anon_kb_peak": max(seen),
                "rss_anon_kb_after": anonymous_kb(),
            }
            shares.append(found)
            await worker.resume("a1")
            if found["share"] <= OWN_SHARE:
                break
        await worker.stop("a1")
    record_property("shares", str(shares))
    assert min(each["share"] for each in shares) <= OWN_SHARE, shares
    assert min(each["rss_anon_kb_peak"] - each["rss_anon_kb_before"] for each in shares) <= MEMORY_KB, shares
