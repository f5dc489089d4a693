"""Durable volumes and hooks on real gVisor: what an application writes, and what it is told."""

import json

import pytest

from tests.real.scenery import assignment, running
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

WORK = {"durableVolumes": [{"name": "work"}]}
MOUNTED = [{"name": "work", "mountPath": "/data"}]
WRITE = "i=0; while :; do echo $i; echo $i >> /data/lines; i=$((i+1)); sleep 0.02; done"
"""Counts on its output and in its volume, by a file that is opened anew each time."""
HOLD = "exec 3>> /data/lines; i=0; while :; do echo $i; echo $i >&3; i=$((i+1)); sleep 0.02; done"
"""The same by one file that stays open."""


def writing(uid, rootfs, script=WRITE, *, generation=1, user=None, suspend=None, **more):
    extra = {} if user is None else {"user": user}
    spec = {**WORK, **({} if suspend is None else {"suspend": suspend}), **more}
    container = running("c1", rootfs, "sh", "-c", script, volumeMounts=MOUNTED, **extra)
    return assignment(uid, container, generation=generation, **spec)


def volume(worker, uid="a1", name="work"):
    return worker.state.actor(uid).volume(name)


def lines(worker, uid="a1"):
    path = volume(worker, uid) / "lines"
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


def whole(found):
    """Every number once, in order."""
    return found == [str(number) for number in range(len(found))]


@pytest.mark.parametrize("script", [WRITE, HOLD])
async def test_a_full_snapshot_has_memory_and_volumes_of_one_moment(tmp_path, rootfs, script):
    async with open_worker(tmp_path) as worker:
        await worker.start(writing("a1", rootfs, script))
        await eventually(lambda: len(lines(worker)) > 5)
        await worker.suspend("a1")
        saved = lines(worker)
        assert len(saved) - len(worker.lines("a1", "c1")) in {-1, 0, 1}
        with (volume(worker) / "lines").open("a") as file:
            file.write("whatever came later\n")
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")
        await eventually(lambda: len(lines(worker)) > len(saved) + 3)
        assert whole(lines(worker))
        assert lines(worker)[: len(saved)] == saved
        await worker.stop("a1")
        assert whole(lines(worker)), "it outlives its actor"


async def test_data_alone_is_there_after_a_cold_start(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(writing("a1", rootfs, suspend={"scope": "Data"}))
        await eventually(lambda: len(lines(worker)) > 5)
        await worker.suspend("a1")
        saved = lines(worker)
        (snapshot,) = worker.snapshots("a1")
        assert {path.name for path in snapshot.iterdir()} == {"manifest.json", "volumes.tar"}
        assert json.loads((snapshot / "manifest.json").read_text())["volumes"] == ["work"]
        (volume(worker) / "lines").unlink()
        await worker.resume("a1")
        await eventually(lambda: len(lines(worker)) > len(saved) + 3)
        found = lines(worker)
        assert found[: len(saved)] == saved
        assert found[len(saved)] == "0", "the application has begun anew"


async def test_whoever_runs_in_a_container_may_write_and_the_host_sees_nothing_of_it(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(writing("a1", rootfs, user="1000:1000"))
        await eventually(lambda: len(lines(worker)) > 5)
        assert (volume(worker) / "lines").stat().st_uid == 1000
        assert volume(worker).parent.stat().st_mode & 0o077 == 0
        await worker.suspend("a1")
        await worker.resume("a1")
        await eventually(lambda: len(lines(worker)) > 10)
        assert whole(lines(worker))


async def test_containers_share_a_volume_and_the_given_rootfs_stays_as_it_was(tmp_path, rootfs):
    before = sorted(path.name for path in rootfs.iterdir())
    reads = "while :; do test -e $0 && wc -l < $0; sleep 0.02; done"
    reader = running("c2", rootfs, "sh", "-c", reads, "/shared/deep/lines")
    reader["volumeMounts"] = [{"name": "work", "mountPath": "/shared/deep"}]
    document = writing("a1", rootfs)
    document["spec"]["containers"].append(reader)
    async with open_worker(tmp_path) as worker:
        await worker.start(document)
        await eventually(lambda: len(worker.lines("a1", "c2")) > 5 and int(worker.lines("a1", "c2")[-1]) > 5)
        await worker.suspend("a1")
        await worker.resume("a1")
        seen = int(worker.lines("a1", "c2")[-1])
        await eventually(lambda: int(worker.lines("a1", "c2")[-1]) > seen)
    assert sorted(path.name for path in rootfs.iterdir()) == before


TOLD = 'trap "echo USR1 >> /data/told" USR1; trap "echo USR2 >> /data/told" USR2; echo up; while :; do sleep 0.02; done'


def told(worker):
    path = volume(worker) / "told"
    return path.read_text().split() if path.exists() else []


async def test_an_application_is_told_by_signals(tmp_path, rootfs):
    hooks = {"preSuspend": {"signal": "USR1"}, "postResume": {"signal": "USR2"}}
    async with open_worker(tmp_path) as worker:
        await worker.start(writing("a1", rootfs, TOLD, lifecycle=hooks))
        await eventually(lambda: worker.lines("a1", "c1"))
        await worker.suspend("a1")
        await worker.resume("a1")
        # A signal is only delivered: the freeze may come before the shell has written of it, and then it does after.
        await eventually(lambda: len(told(worker)) > 1)
        assert sorted(told(worker)) == ["USR1", "USR2"]


async def test_a_command_has_ended_before_the_freeze_and_another_runs_after_the_restore(tmp_path, rootfs):
    hooks = {
        "preSuspend": {"exec": ["sh", "-c", "echo begun >> /data/told; sleep 0.5; echo ended >> /data/told"]},
        "postResume": {"exec": ["sh", "-c", "echo resumed >> /data/told"]},
    }
    async with open_worker(tmp_path) as worker:
        await worker.start(writing("a1", rootfs, lifecycle=hooks))
        await worker.suspend("a1")
        assert told(worker) == ["begun", "ended"]
        await worker.resume("a1")
        assert told(worker) == ["begun", "ended", "resumed"]
        await worker.counted_on("a1", "c1")


async def test_a_command_that_fails_refuses_the_suspend_and_what_it_let_go_of_is_taken_back(tmp_path, rootfs):
    hooks = {
        "preSuspend": {"exec": ["sh", "-c", "echo let go >&2; exit 3"]},
        "postResume": {"exec": ["sh", "-c", "echo back >> /data/told"]},
    }
    async with open_worker(tmp_path) as worker:
        await worker.start(writing("a1", rootfs, lifecycle=hooks))
        await worker.ask("suspend", uid="a1")
        status = await worker.status_when("a1", lambda status: status["error"] and status["state"] == "Running")
        assert (status["error"]["reason"], status["error"]["subject"]) == ("HookFailed", "c1")
        assert "exit code 3" in status["error"]["message"]
        assert status["error"]["detail"] == "let go"
        assert told(worker) == ["back"]
        await worker.counted_on("a1", "c1")
        assert worker.snapshots("a1") == []
