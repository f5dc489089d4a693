"""Round after round of suspend and resume, and nothing grows: descriptors, processes, threads, mounts, disk, memory."""

import gc
import os
import re
import threading
from pathlib import Path

import attrs
import pytest

from tests.real.onlookers import pids_below
from tests.real.scenery import assignment, counting
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

KEPT = 2
MEMORY_KB = 4096
"""What caches may still take; the twenty rounds get no more than the three."""


@attrs.frozen
class Footprint:
    """What a worker with one running actor has."""

    descriptors: int
    processes: int
    threads: int
    mounts: int
    files: int
    memory_kb: int

    @classmethod
    def of(cls, directory):
        gc.collect()
        memory = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
        assert memory
        snapshots = directory / "state/actors/a1/snapshots"
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - counted, not used as paths
            processes=len(pids_below(directory)),
            threads=threading.active_count(),
            mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
            files=sum(
                len(files) for parent, _, files in os.walk(directory) if not Path(parent).is_relative_to(snapshots)
            ),
            memory_kb=int(memory[1]),
        )


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.long)])
async def test_rounds_of_suspend_and_resume_leave_no_trace(tmp_path, rootfs, rounds, record_property):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        before = Footprint.of(tmp_path)
        # The first rounds fill caches and thread pools.
        for number in range(-2, rounds):
            await worker.counted_on("a1", "c1")
            await worker.suspend("a1")
            assert worker.left() == []
            await worker.resume("a1")
            if number == -1:
                before = Footprint.of(tmp_path)
        after = Footprint.of(tmp_path)
        record_property("before", str(before))
        record_property("after", str(after))
        assert attrs.evolve(after, memory_kb=0, threads=0) == attrs.evolve(before, memory_kb=0, threads=0)
        assert after.threads <= before.threads + 2  # pools that had not been filled yet
        assert after.memory_kb - before.memory_kb < MEMORY_KB
        assert len(worker.snapshots("a1")) == KEPT
        for container in ("c1", "c2"):
            await worker.counted_on("a1", container)
