"""Snapshots that are not what they were: a resume is refused with its reason, and nothing is created for it."""

import os
import shutil

import pytest

from statemachine.problem import ProblemError
from tests.real.scenery import assignment, counting, flip_a_byte
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


DAMAGES = [
    ("pages.img", flip_a_byte, "SnapshotCorrupt"),
    ("checkpoint.img", flip_a_byte, "SnapshotCorrupt"),
    ("checkpoint.img", cut, "SnapshotCorrupt"),
    ("pages_meta.img", os.unlink, "SnapshotCorrupt"),
    ("manifest.json", os.unlink, "SnapshotMissing"),
    ("manifest.json", cut, "SnapshotCorrupt"),
]


@pytest.mark.parametrize(("name", "damage", "reason"), DAMAGES)
async def test_a_damaged_snapshot_is_refused_and_its_actor_stays_suspended(tmp_path, rootfs, name, damage, reason):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        await worker.suspend("a1")
        (snapshot,) = worker.snapshots("a1")
        whole = (snapshot / name).read_bytes()
        damage(snapshot / name)
        passed = len(worker.gates.passed)
        await worker.ask("resume", uid="a1")
        status = await worker.reach("a1", "Suspended")
        assert (status["error"]["reason"], status["error"]["step"]) == (reason, "restore")
        assert name in status["error"]["message"] or str(snapshot) in status["error"]["message"]
        assert not [
            name for name, _ in worker.gates.passed[passed:] if name in {"before restore", "make_tree sandboxes"}
        ]
        assert worker.left() == []
        # Whole again, it is as good as ever.
        (snapshot / name).write_bytes(whole)
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")


async def test_a_snapshot_that_vanished_is_missing(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        uri = (await worker.suspend("a1"))["lastGoodSnapshot"]["uri"]
        shutil.rmtree(worker.state.actor("a1").snapshots)
        await worker.ask("resume", uid="a1")
        assert (await worker.reach("a1", "Suspended"))["error"]["reason"] == "SnapshotMissing"
        other = assignment("a2", counting("c1", rootfs), snapshot={"uri": uri})
        with pytest.raises(ProblemError, match="SnapshotMissing"):
            await worker.submit(other)
        # Whoever wants to run all the same says so.
        await worker.submit(assignment("a1", counting("c1", rootfs), generation=2, snapshot={"from": "None"}))
        await worker.reach("a1", "Running")


async def test_a_damaged_snapshot_of_another_actor_is_refused_at_admission(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        uri = (await worker.suspend("a1"))["lastGoodSnapshot"]["uri"]
        (snapshot,) = worker.snapshots("a1")
        flip_a_byte(snapshot / "pages.img")
        with pytest.raises(ProblemError, match="SnapshotCorrupt"):
            await worker.submit(assignment("a2", counting("c1", rootfs), snapshot={"uri": uri}))


async def test_a_snapshot_of_other_containers_is_incompatible(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        uri = (await worker.suspend("a1"))["lastGoodSnapshot"]["uri"]
        await worker.submit(assignment("a2", counting("c1", rootfs), counting("c2", rootfs), snapshot={"uri": uri}))
        status = await worker.reach("a2", "Suspended")
        assert status["error"]["reason"] == "SnapshotIncompatible"
        assert worker.left() == []
