"""Containers that end: alone or beside others, with 0 or not, once or again and again."""

import json
import os
import signal

import pytest

from tests.real.scenery import assignment, counting, exiting, running
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


def exit_codes(status):
    return {each["name"]: each["exitCode"] for each in status["containers"]}


async def test_a_container_that_exits_with_7_alone_fails_its_actor(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.submit(assignment("a1", exiting("c1", rootfs, 7, after_s=0.2)))
        status = await worker.reach("a1", "Failed")
        assert (status["error"]["reason"], status["error"]["subject"]) == ("ContainerFailed", "c1")
        assert exit_codes(status) == {"c1": 7}
        assert worker.left() == []
        assert await worker.refusal("suspend", uid="a1") == "NothingToSuspend"


@pytest.mark.parametrize("code", [7, 137])
async def test_a_container_that_fails_beside_a_live_one_is_told_and_no_suspend_is_made_without_it(
    tmp_path, rootfs, code
):
    async with open_worker(tmp_path) as worker:
        command = "kill -9 $$" if code == 137 else f"exit {code}"
        failing = running("failing", rootfs, "sh", "-c", f"sleep 0.2; {command}")
        await worker.start(assignment("a1", counting("c1", rootfs), failing))
        status = await worker.status_when("a1", lambda status: exit_codes(status)["failing"] is not None)
        assert (status["state"], exit_codes(status)) == ("Running", {"c1": None, "failing": code})
        await worker.ask("suspend", uid="a1")
        status = await worker.status_when("a1", lambda status: status["state"] == "Running" and status["error"])
        assert (status["error"]["reason"], status["error"]["subject"]) == ("ContainerExited", "failing")
        await worker.counted_on("a1", "c1")
        assert worker.snapshots("a1") == []
        await worker.stop("a1")


async def test_a_container_that_ends_well_beside_a_live_one_is_not_missed_after_a_resume(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", exiting("once", rootfs, 0), counting("c1", rootfs)))
        await worker.status_when("a1", lambda status: exit_codes(status)["once"] == 0)
        for _ in range(2):
            await worker.counted_on("a1", "c1")
            assert exit_codes(await worker.suspend("a1")) == {"once": 0, "c1": None}
            assert exit_codes(await worker.resume("a1")) == {"once": 0, "c1": None}
            await worker.counted_on("a1", "c1")
        await worker.stop("a1")


async def test_containers_that_all_end_with_0_complete_their_actor(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        quick, slow = exiting("quick", rootfs, 0), exiting("slow", rootfs, 0, after_s=0.3)
        await worker.submit(assignment("a1", quick, slow))
        status = await worker.reach("a1", "Terminated")
        assert status["error"]["reason"] == "Completed"
        assert exit_codes(status) == {"quick": 0, "slow": 0}
        assert worker.left() == []


async def test_containers_that_complete_after_a_resume_complete_their_actor(tmp_path, rootfs):
    waits = "[ $i -ne 30 ] || while ! [ -e /tmp/resumed ]; do sleep 0.02; done"
    count = f"i=0; while [ $i -lt 60 ]; do {waits}; echo $i; i=$((i+1)); sleep 0.02; done"
    hooks = {"postResume": {"exec": ["sh", "-c", ": > /tmp/resumed"]}}
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", running("c1", rootfs, "sh", "-c", count), lifecycle=hooks))
        await worker.suspend("a1")
        await worker.ask("resume", uid="a1")
        status = await worker.reach("a1", "Terminated")
        assert status["error"]["reason"] == "Completed"
        assert worker.lines("a1", "c1") == [str(number) for number in range(60)]


async def test_a_restored_container_whose_file_server_is_killed_is_told_runs_on_and_ends_with_its_own_code(
    tmp_path, rootfs, monkeypatch
):
    monkeypatch.setattr("actors.steps.watch.ASK_S", 2.0)
    script = "trap 'exit 7' TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done"
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", running("c1", rootfs, "sh", "-c", script)))
        await worker.counted_on("a1", "c1")
        await worker.suspend("a1")
        await worker.resume("a1")
        os.kill(worker.record()["gofers"]["c1"]["pid"], signal.SIGKILL)
        status = await worker.status_when("a1", lambda status: status["notices"])
        assert [(each["reason"], each["subject"]) for each in status["notices"]] == [("FileServerLost", "c1")]
        assert (status["state"], exit_codes(status)) == ("Running", {"c1": None})
        await worker.counted_on("a1", "c1")
        assert worker.record()["belongings"]["doubted"] == ["c1"]
        assert exit_codes(await worker.stop("a1")) == {"c1": 7}
        assert worker.left() == []


async def test_a_container_that_lost_its_file_server_has_one_again_after_a_suspend_and_a_resume(
    tmp_path, rootfs, monkeypatch
):
    monkeypatch.setattr("actors.steps.watch.ASK_S", 2.0)
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await worker.counted_on("a1", "c1")
        await worker.suspend("a1")
        await worker.resume("a1")
        os.kill(worker.record()["gofers"]["c1"]["pid"], signal.SIGKILL)
        await worker.status_when("a1", lambda status: status["notices"])
        await worker.suspend("a1")
        status = await worker.resume("a1")
        assert status["notices"] == []
        assert set(worker.record()["gofers"]) == {"pause", "c1", "c2"}
        for name in ("c1", "c2"):
            numbers = await worker.counted_on("a1", name)
            assert numbers == [str(number) for number in range(len(numbers))]
        await worker.stop("a1")


async def test_an_actor_that_may_restart_is_tried_again_after_a_backoff_and_then_runs(tmp_path, rootfs):
    tries = tmp_path / "tries"
    script = f"{TRY}; {COUNTS}"
    async with open_worker(tmp_path) as worker:
        bundle = _bundle_with_data(tmp_path / "bundle", rootfs, tries, script)
        second = worker.gates.close("make_tree sandboxes", skip=1)  # or else it may have begun before we look
        await worker.submit(assignment("a1", {"name": "c1", "bundle": str(bundle)}, restartPolicy="OnFailure"))
        status = await worker.reach("a1", "BackingOff")
        assert status["error"]["reason"] == "ContainerFailed"
        assert worker.left() == []
        second.open()
        status = await worker.status_when(
            "a1", lambda status: len(list(tries.iterdir())) == 3 and status["state"] == "Running"
        )
        assert worker.states("a1").count("BackingOff") == 2
        await worker.status_when("a1", lambda _: worker.lines("a1", "c1"))
        await worker.stop("a1")


TRY = 'n=$(ls /data | wc -l); : > "/data/$n"; [ "$n" -lt 2 ] && exit 3'
COUNTS = 'trap "exit 0" TERM; while :; do echo up; sleep 0.02; done'


def _bundle_with_data(bundle, rootfs, data, script):
    """A bundle that was given, with a directory of the host's in it that counts its lives."""
    data.mkdir()
    bundle.mkdir()
    document = {
        "ociVersion": "1.0.2",
        "process": {"args": ["sh", "-c", script], "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"]},
        "root": {"path": str(rootfs)},
        "mounts": [{"destination": "/data", "type": "bind", "source": str(data), "options": ["rw", "rbind"]}],
    }
    (bundle / "config.json").write_text(json.dumps(document))
    return bundle
