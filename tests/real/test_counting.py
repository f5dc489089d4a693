"""Real actors that count: started, suspended, resumed, stopped, and nothing is lost or left on the way."""

from functools import partial

import anyio
import pytest

from tests.real.scenery import assignment, counting, digest_of, goes_on
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


async def test_two_containers_and_pause_count_on_one_shared_rootfs_each_in_its_own_log(tmp_path, rootfs):
    before = digest_of(rootfs)
    async with open_worker(tmp_path) as worker:
        status = await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        assert [(each["name"], each["state"], each["exitCode"]) for each in status["containers"]] == [
            ("c1", "Running", None),
            ("c2", "Running", None),
        ]
        assert set(worker.record()["gofers"]) == {"pause", "c1", "c2"}
        for container in ("c1", "c2"):
            await worker.counted_on("a1", container)
        await worker.stop("a1")
        assert worker.left() == []
    assert digest_of(rootfs) == before


async def test_counters_go_on_without_a_hole_after_each_resume(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        for life in range(1, 4):
            for container in ("c1", "c2"):
                await worker.counted_on("a1", container)
            status = await worker.suspend("a1")
            assert worker.left() == []
            assert status["lastGoodSnapshot"]["uri"].endswith(status["lastGoodSnapshot"]["id"])
            saved = {container: worker.lines("a1", container) for container in ("c1", "c2")}
            await worker.resume("a1")
            for container, lines in saved.items():
                now = await worker.counted_on("a1", container)
                assert now[: len(lines)] == lines, f"life {life} changed what {container} had written"
        await worker.stop("a1")
        assert all(goes_on(worker.lines("a1", container)) for container in ("c1", "c2"))
        assert len(worker.snapshots("a1")) == 2


async def test_one_actor_is_suspended_while_two_others_start(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await worker.counted_on("a1", "c1")
        async with anyio.create_task_group() as group:
            group.start_soon(worker.suspend, "a1")
            group.start_soon(worker.start, assignment("a2", counting("c1", rootfs)))
            group.start_soon(worker.start, assignment("a3", counting("c1", rootfs), counting("c2", rootfs)))
        async with anyio.create_task_group() as group:
            group.start_soon(worker.resume, "a1")
            group.start_soon(worker.suspend, "a2")
            group.start_soon(worker.stop, "a3")
        await worker.resume("a2")
        for uid, container in (("a1", "c1"), ("a1", "c2"), ("a2", "c1")):
            assert goes_on(await worker.counted_on(uid, container))
        assert [(await worker.status(uid))["state"] for uid in ("a1", "a2", "a3")] == [
            "Running",
            "Running",
            "Terminated",
        ]


async def test_one_snapshot_is_restored_twice_into_actors_of_their_own(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await worker.counted_on("a1", "c1")
        uri = (await worker.suspend("a1"))["lastGoodSnapshot"]["uri"]
        saved = worker.lines("a1", "c1")
        others = [
            assignment(uid, counting("c1", rootfs), counting("c2", rootfs), snapshot={"uri": uri})
            for uid in ("a2", "a3")
        ]
        async with anyio.create_task_group() as group:
            group.start_soon(worker.resume, "a1")
            for document in others:
                group.start_soon(worker.start, document)
        await worker.counted_on("a1", "c1")
        for uid in ("a2", "a3"):
            await worker.status_when(uid, partial(_has_written, worker, uid))
            lines = worker.lines(uid, "c1")
            assert lines == [str(len(saved) + number) for number in range(len(lines))]
        await worker.suspend("a2")
        await worker.resume("a2")


async def test_an_actor_that_is_wanted_suspended_first_waits_with_its_snapshot(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        uri = (await worker.suspend("a1"))["lastGoodSnapshot"]["uri"]
        await worker.stop("a1")
        await worker.submit(assignment("a2", counting("c1", rootfs), desiredState="Suspended", snapshot={"uri": uri}))
        await worker.reach("a2", "Suspended")
        assert worker.left() == []
        await worker.resume("a2")
        await worker.status_when("a2", lambda _: len(worker.lines("a2", "c1")) > 3)


def _has_written(worker, uid, _status):
    return len(worker.lines(uid, "c1")) > 3
