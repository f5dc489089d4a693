"""`greenroom snapshots` beside a worker that runs, on snapshots that a real runsc has made."""

import json

import pytest

from tests.real.process import WorkerProcess, greenroom
from tests.real.scenery import assignment, counting, flip_a_byte, running

pytestmark = pytest.mark.runsc


def snapshots(worker, *arguments):
    return greenroom("snapshots", *arguments, "--state-dir", worker.state.root)


def last(answer):
    assert "Traceback" not in answer.stderr
    return answer.stderr.splitlines()[-1]


def test_a_snapshot_is_listed_verified_checked_and_pruned_without_asking_the_worker(tmp_path, rootfs):
    file = tmp_path / "a1.json"
    worker = WorkerProcess(tmp_path)
    worker.begin()
    try:
        document = assignment("a1", counting("c1", rootfs))
        file.write_text(json.dumps(document))
        worker.submit(document)
        for _ in range(2):
            worker.reach("a1", "Running")
            worker.ask("suspend", uid="a1")
            worker.reach("a1", "Suspended")
            worker.ask("resume", uid="a1")
        worker.reach("a1", "Running")
        first, second = json.loads(snapshots(worker, "list", "a1", "--json").stdout)["snapshots"]
        assert snapshots(worker, "verify", second["id"]).returncode == 0
        answer = snapshots(worker, "check", second["uri"], "--assignment", file)
        assert (answer.stdout, answer.stderr, answer.returncode) == ("restorable here\n", "", 0)
        file.write_text(json.dumps(assignment("a1", running("c1", rootfs, "sleep", "1"))))
        answer = snapshots(worker, "check", second["id"], "--assignment", file, "--platform", "ptrace")
        assert answer.returncode == 1
        assert answer.stdout.splitlines()[:2] == [
            "platform: was systrap, is ptrace",
            "c1: argument 0: was 'sh', is 'sleep'",
        ]
        assert last(answer) == "error: SnapshotIncompatible: platform was systrap in the snapshot, here it is ptrace"
        assert last(snapshots(worker, "prune", "a1", "--keep", "1")).startswith("error: StateDirInUse: ")
        worker.ask("stop", uid="a1")
        worker.reach("a1", "Terminated")
    finally:
        worker.give_up()
    flip_a_byte(worker.state.actor("a1").snapshot(second["id"]) / "pages.img")
    answer = snapshots(worker, "verify", second["id"])
    assert (answer.returncode, last(answer).split(":")[1]) == (1, " SnapshotCorrupt")
    kept = json.loads(snapshots(worker, "prune", "a1", "--keep", "1", "--json").stdout)
    assert (kept["kept"], kept["damaged"], kept["removed"]) == ([first["id"]], [second["id"]], [])
