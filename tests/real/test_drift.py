"""Round after round of suspend and resume, and nothing grows: descriptors, processes, threads, mounts, disk, memory.

Memory is that of a worker which is a process of its own, and of it what nobody shares (RssAnon): the one that tests run
in grows by itself. A worker keeps the last 32 manifests that it has read, 25 KB each, and a few hundred dates and URIs:
before those are there it grows by 30 KB a round, afterwards by 3.
"""

import os
import re
import threading
from pathlib import Path

import attrs
import pytest

from tests.real.onlookers import pids_below
from tests.real.process import WorkerProcess
from tests.real.scenery import assignment, counting
from tests.real.stage import open_worker

pytestmark = [pytest.mark.runsc]

KEPT = 2
MEMORY_KB = 2048
"""What all the rounds may add."""
WARM_UP = 5
"""Rounds that fill pools of threads."""


def files_below(directory, snapshots):
    return sum(len(files) for parent, _, files in os.walk(directory) if not Path(parent).is_relative_to(snapshots))


@attrs.frozen
class Footprint:
    """What a worker with one running actor has."""

    descriptors: int
    processes: int
    threads: int
    mounts: int
    files: int

    @classmethod
    def of(cls, directory):
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - counted, not used as paths
            processes=len(pids_below(directory)),
            threads=threading.active_count(),
            mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
            files=files_below(directory, directory / "state/actors/a1/snapshots"),
        )


@pytest.mark.anyio
async def test_three_rounds_of_suspend_and_resume_leave_no_trace(tmp_path, rootfs, record_property):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        before = Footprint.of(tmp_path)
        # The first rounds fill thread pools.
        for number in range(-2, 3):
            await worker.counted_on("a1", "c1")
            await worker.suspend("a1")
            assert worker.left() == []
            await worker.resume("a1")
            if number == -1:
                before = Footprint.of(tmp_path)
        after = Footprint.of(tmp_path)
        record_property("before", str(before))
        record_property("after", str(after))
        assert attrs.evolve(after, threads=0) == attrs.evolve(before, threads=0)
        assert after.threads <= before.threads + 2  # pools that had not been filled yet
        assert len(worker.snapshots("a1")) == KEPT
        for container in ("c1", "c2"):
            await worker.counted_on("a1", container)


@attrs.frozen
class Held:
    """What a worker process with one running actor holds of the machine."""

    descriptors: int
    processes: int
    mounts: int
    files: int
    snapshots: int
    journal_is_short: bool
    threads: int
    memory_kb: int

    @classmethod
    def by(cls, worker):
        status = Path(f"/proc/{worker.running.pid}/status").read_text()
        actor = worker.state.actor("a1")
        return cls(
            descriptors=worker.descriptors(),
            processes=len(pids_below(worker.directory)),
            mounts=len(Path(f"/proc/{worker.running.pid}/mountinfo").read_text().splitlines()),
            files=files_below(worker.state.root, actor.snapshots),
            snapshots=len(list(actor.snapshots.iterdir())),
            journal_is_short=actor.journal.stat().st_size < JOURNAL_BYTES,
            threads=number_in(status, "Threads"),
            memory_kb=number_in(status, "RssAnon"),
        )


JOURNAL_BYTES = 1 << 18
"""A round adds some 5 KB, and it is compacted at rest."""


def number_in(status, name) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert found
    return int(found[1])


@pytest.fixture
def worker(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path)
    worker.begin()
    yield worker
    worker.give_up()


def one_round(worker):
    worker.become("a1", "suspend", "Suspended")
    assert worker.left() == []
    worker.become("a1", "resume", "Running")


@pytest.mark.parametrize(
    "rounds", [pytest.param(20, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.campaign)]
)
def test_a_worker_process_does_not_grow_with_rounds_of_suspend_and_resume(worker, rootfs, rounds, record_property):
    worker.start(assignment("a1", counting("c1", rootfs)))
    for _ in range(WARM_UP):
        one_round(worker)
    before = Held.by(worker)
    for _ in range(rounds):
        one_round(worker)
    after = Held.by(worker)
    record_property("before", str(before))
    record_property("after", str(after))
    # Whether the client's last connection is closed already is chance.
    assert abs(after.descriptors - before.descriptors) <= 1
    assert after.threads <= before.threads + 2
    assert after.memory_kb - before.memory_kb < MEMORY_KB, (before, after)
    leveled = {"descriptors": 0, "threads": 0, "memory_kb": 0}
    assert attrs.evolve(after, **leveled) == attrs.evolve(before, **leveled)
    assert after.snapshots == KEPT
    assert after.journal_is_short
    assert worker.end() == 0
