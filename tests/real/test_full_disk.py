"""A suspend that finds no room must cost nothing: the actor counts on, and a later suspend works."""

import contextlib
import os

import pytest

from tests.disks import small_disk
from tests.real.scenery import assignment, counting, running
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

FILLS = "dd if=/dev/urandom of=/dev/shm/x bs=1M count=24 2>/dev/null; echo filled; exec sleep 1000"


# The checkpoint fails while it writes its pages, or before the first of them.
@pytest.mark.parametrize("left_bytes", [8 << 20, 1 << 20, 16 << 10])
async def test_a_checkpoint_without_room_leaves_the_actor_running_and_a_later_one_works(tmp_path, rootfs, left_bytes):
    async with open_worker(tmp_path) as worker:
        await worker.start(
            assignment(
                "a1",
                counting("c1", rootfs),
                running("filled", rootfs, "sh", "-c", FILLS),
                terminationGracePeriodSeconds=0,
            )
        )
        await worker.status_when("a1", lambda _: worker.lines("a1", "filled"))
        pid = worker.sandbox_pid()
        snapshots = worker.state.actor("a1").snapshots
        with small_disk(snapshots, "96m"):
            # There was room when it was measured; then somebody else takes it.
            worker.gates.on("after pause", lambda: _fill(snapshots / "foreign", leaving_bytes=left_bytes))
            await worker.ask("suspend", uid="a1")
            status = await worker.status_when("a1", lambda status: status["state"] == "Running")
            assert (status["error"]["reason"], status["error"]["step"]) == ("InsufficientDisk", "suspend")
            assert status["lastGoodSnapshot"] is None
            assert [path.name for path in worker.snapshots("a1")] == ["foreign"]
            assert worker.sandbox_pid() == pid
            await worker.counted_on("a1", "c1")
        status = await worker.suspend("a1")
        assert status["error"] is None
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")
        await worker.stop("a1")


async def test_a_manifest_without_room_leaves_the_actor_running(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        snapshots = worker.state.actor("a1").snapshots
        with small_disk(snapshots, "64m"):
            # Between the proof of the files and the manifest somebody else takes the rest of the disk.
            worker.gates.on("replace manifest.json", lambda: _fill(snapshots / "foreign"))
            await worker.ask("suspend", uid="a1")
            status = await worker.status_when("a1", lambda status: status["state"] == "Running")
            assert status["error"]["reason"] == "InsufficientDisk"
            assert [path.name for path in worker.snapshots("a1")] == ["foreign"]
            await worker.counted_on("a1", "c1")
        await worker.suspend("a1")
        assert worker.left() == []


def _fill(path, *, leaving_bytes=0):
    told = os.statvfs(path.parent)
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        file.write(bytes(told.f_bavail * told.f_frsize - leaving_bytes))
        while not leaving_bytes:
            file.write(bytes(1 << 12))
