"""A kept snapshot and an actor that is not the same any more: refused with what differs, and forced where wished."""

import json
from functools import partial
from typing import Any

import pytest

from tests.real.scenery import COUNT, assignment, counting, running
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

OTHER = COUNT.replace("echo $i", "echo x$i")
"""Would write x0, x1, x2, …"""


async def test_new_arguments_on_a_kept_snapshot_are_refused_and_forcing_it_runs_the_old_ones(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        good = (await worker.suspend("a1"))["lastGoodSnapshot"]
        await worker.stop("a1")
        passed = len(worker.gates.passed)
        await worker.submit(assignment("a1", running("c1", rootfs, "sh", "-c", OTHER), generation=2))
        status = await worker.reach("a1", "Suspended")
        assert (status["error"]["reason"], status["error"]["step"]) == ("BundleChanged", "restore")
        assert status["error"]["subject"] == "c1: argument 2"
        assert "echo x$i" in status["error"]["message"]
        assert "--force" in status["error"]["hint"]
        assert (status["lastGoodSnapshot"], status["forced"]) == (good, False)
        assert not [
            name for name, _ in worker.gates.passed[passed:] if name in {"before restore", "make_tree sandboxes"}
        ]
        assert worker.left() == []

        await worker.ask("resume", uid="a1", onDifference="Force")
        status = await worker.reach("a1", "Running")
        assert (status["error"], status["forced"]) == (None, True)
        await worker.counted_on("a1", "c1")  # the numbers go on, and no x is among them
        journal = worker.state.actor("a1").journal.read_text().splitlines()
        marks = [line["progress"]["mark"] for line in map(json.loads, journal) if "progress" in line]
        assert "Forced c1: argument 2" in marks
        await worker.stop("a1")


@pytest.mark.parametrize("change", ["args", "mount", "device"])
async def test_a_given_bundle_that_was_changed_since_is_refused_with_what_changed(tmp_path, rootfs, change):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    document: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {"args": ["sh", "-c", COUNT], "cwd": "/", "env": ["PATH=/bin"]},
        "root": {"path": str(rootfs)},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount", "network")]},
    }
    (bundle / "config.json").write_text(json.dumps(document))
    whole = (bundle / "config.json").read_bytes()
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", {"name": "c1", "bundle": str(bundle)}))
        await worker.suspend("a1")
        document["process"]["args"] += ["more"] if change == "args" else []
        document["mounts"] += [{"destination": "/new", "type": "tmpfs", "source": "x"}] if change == "mount" else []
        if change == "device":
            document["linux"]["devices"] = [{"path": "/dev/x", "type": "c", "major": 1, "minor": 3}]
        (bundle / "config.json").write_text(json.dumps(document))
        await worker.ask("resume", uid="a1")
        error = (await worker.reach("a1", "Suspended"))["error"]
        subject = {"args": "c1: argument 3", "mount": "c1: mount /new", "device": "c1: device /dev/x"}[change]
        assert (error["reason"], error["subject"]) == ("BundleChanged", subject)
        assert worker.left() == []
        # As it was, it goes on.
        (bundle / "config.json").write_bytes(whole)
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")
        await worker.stop("a1")


async def test_two_actors_and_a_second_life_come_from_one_snapshot(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        uri = (await worker.suspend("a1"))["lastGoodSnapshot"]["uri"]
        told = worker.lines("a1", "c1")
        for uid in ("a2", "a3"):
            await worker.submit(assignment(uid, counting("c1", rootfs), snapshot={"uri": uri}))
        await worker.resume("a1")
        for uid in ("a2", "a3"):
            assert (await worker.reach(uid, "Running"))["lastGoodSnapshot"]["uri"] == uri
            first = (await eventually(partial(worker.lines, uid, "c1")))[0]
            assert int(first) == len(told), "it goes on where the other was saved"
        await worker.counted_on("a1", "c1")
        for uid in ("a1", "a2", "a3"):
            await worker.stop(uid)
        assert worker.left() == []
