"""Round after round of suspend and resume, and nothing grows: descriptors, processes, threads, mounts, disk, memory.

Memory is that of a worker which is a process of its own, and of it what nobody shares (RssAnon): the one that tests run
in grows by itself. A worker keeps the last 32 manifests that it has read, 25 KB each, and a few hundred dates and URIs:
before those are there it grows by 30 KB a round, afterwards by 3.
"""

import os
import re
import threading
from functools import partial
from pathlib import Path

import attrs
import pytest

from tests.real.onlookers import pids_below
from tests.real.process import WorkerProcess, wait_until
from tests.real.scenery import assignment, counting
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.runsc]

KEPT = 2
MEMORY_KB = 2048
"""What all the rounds may add."""
WARM_UP = 5
"""Rounds that fill pools of threads."""
LOOKS = 20
"""Those that see the same, one after the other, see what stays: a connection is closed, and a fork of a sandbox has
become itself, a moment later."""


class Stays:
    """Whether one look after the other sees the same."""

    def __init__(self, look):
        self._look, self._seen, self._times = look, None, 0

    def __call__(self):
        found = self._look()
        self._times = self._times + 1 if found == self._seen else 0
        self._seen = found
        return found if self._times >= LOOKS else None


def files_below(directory, snapshots):
    return sum(len(files) for parent, _, files in os.walk(directory) if not Path(parent).is_relative_to(snapshots))


def mounts_below(directory, pid):
    """Others on the machine mount what they like."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return sum(f" {directory}/" in line for line in lines)


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
            mounts=mounts_below(directory, "self"),
            files=files_below(directory, directory / "state/actors/a1/snapshots"),
        )


@pytest.mark.anyio
async def test_three_rounds_of_suspend_and_resume_leave_no_trace(tmp_path, rootfs, record_property):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        before = await eventually(Stays(partial(Footprint.of, tmp_path)))
        # The first rounds fill thread pools.
        for number in range(-2, 3):
            await worker.counted_on("a1", "c1")
            await worker.suspend("a1")
            assert worker.left() == []
            await worker.resume("a1")
            if number == -1:
                before = await eventually(Stays(partial(Footprint.of, tmp_path)))
        after = await eventually(Stays(partial(Footprint.of, tmp_path)))
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
            mounts=mounts_below(worker.directory, worker.running.pid),
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


LEVELED = {"threads": 0, "memory_kb": 0}


def held_at_rest(worker):
    """What it holds once all but these stays the same."""
    found = wait_until(Stays(lambda: attrs.evolve(Held.by(worker), **LEVELED)))
    now = Held.by(worker)
    return attrs.evolve(found, threads=now.threads, memory_kb=now.memory_kb)


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
    before = held_at_rest(worker)
    for _ in range(rounds):
        one_round(worker)
    after = held_at_rest(worker)
    record_property("before", str(before))
    record_property("after", str(after))
    assert after.threads <= before.threads + 2
    assert after.memory_kb - before.memory_kb < MEMORY_KB, (before, after)
    assert attrs.evolve(after, **LEVELED) == attrs.evolve(before, **LEVELED)
    assert after.snapshots == KEPT
    assert after.journal_is_short
    assert worker.end() == 0
