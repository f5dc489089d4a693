"""Actors that go from one real worker to another over a real S3 server: what was counted is counted on."""

import shutil

import pytest

from tests.real.scenery import assignment, counting, goes_on
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.runsc, pytest.mark.anyio]


async def stored(worker, uid):
    """Where its snapshot is, once it is in the store."""
    status = await worker.status_when(uid, lambda status: (status["lastGoodSnapshot"] or {}).get("storedUri"))
    assert status["error"] is None
    return status["lastGoodSnapshot"]["storedUri"]


async def test_an_actor_whose_worker_is_gone_goes_on_elsewhere_from_the_store(tmp_path, rootfs, s3, bucket):
    store = f"s3://{bucket}/snapshots"
    async with open_worker(tmp_path / "one") as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), suspend={"uri": store}))
        await worker.counted_on("a1", "c1")
        await worker.suspend("a1")
        uri = await stored(worker, "a1")
        counted = worker.lines("a1", "c1")
        assert uri.startswith(f"{store}/a1/")
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")
    shutil.rmtree(tmp_path / "one")  # with everything that the worker knew
    async with open_worker(tmp_path / "two") as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), snapshot={"uri": uri}, suspend={"uri": store}))
        await eventually(lambda: len(worker.lines("a1", "c1")) > 3)
        assert goes_on([*counted, *worker.lines("a1", "c1")])
        await worker.suspend("a1")
        assert await stored(worker, "a1") != uri


async def test_a_store_that_refuses_is_told_and_gets_the_snapshot_once_it_does_not(tmp_path, rootfs, s3, bucket):
    s3.plan("403", method="GET", times=None)
    async with open_worker(tmp_path, snapshot_store=f"s3://{bucket}/all") as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        await worker.suspend("a1")
        status = await worker.status_when("a1", lambda status: status["error"])
        assert (status["state"], status["error"]["reason"]) == ("Suspended", "SnapshotNotUploaded")
        assert "the-secret" not in str(status)
        s3.clear()
        await stored(worker, "a1")
