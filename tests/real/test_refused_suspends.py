"""Suspends that are refused on real gVisor: nothing was frozen, deleted or written, and the actor counts on."""

import json
import os
import stat
import subprocess
from contextlib import contextmanager
from functools import partial

import anyio
import pytest

from actors.runsc.teardown import RUNSC_ROOT
from sim.mock.scripting import apply
from tests.disks import small_disk
from tests.real.scenery import assignment, counting, exiting, running
from tests.real.stage import SOON_S, eventually, open_worker
from tests.real.test_gpu_actors import settings_on
from tests.sim.mock.nodes import make_node

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

TOUCHING = {f"before {verb}" for verb in ("pause", "checkpoint", "delete", "resume", "restore")}
FILLS = "dd if=/dev/urandom of=/dev/shm/x bs=1M count=24 2>/dev/null; echo filled; exec sleep 1000"
NULL, NOTHING = os.makedev(1, 3), os.makedev(195, 3)


def told(problem, *words):
    """The reason, and which words are not in the message."""
    return problem["reason"], [each for each in words if each not in problem["message"]]


async def refused(worker):
    """A suspend is refused and touches nothing; returns the problem."""
    pid, passed, snapshots = worker.sandbox_pid(), len(worker.gates.passed), worker.snapshots("a1")
    await worker.ask("suspend", uid="a1")
    status = await worker.status_when("a1", lambda status: status["state"] == "Running" and status["error"])
    assert status["error"]["step"] == "suspend"
    assert not TOUCHING & {name for name, _ in worker.gates.passed[passed:]}
    assert (worker.sandbox_pid(), worker.snapshots("a1")) == (pid, snapshots)
    await worker.counted_on("a1", "c1")
    return status["error"]


async def suspended_after_all(worker):
    """The same actor can be suspended now, and goes on where it was."""
    assert (await worker.suspend("a1"))["error"] is None
    await worker.resume("a1")
    await worker.counted_on("a1", "c1")
    await worker.stop("a1")


async def test_a_container_that_failed_refuses_with_its_code(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(
            assignment("a1", counting("c1", rootfs), exiting("once", rootfs, 0), exiting("bad", rootfs, 7))
        )
        await worker.status_when(
            "a1", lambda status: all(each["exitCode"] is not None for each in status["containers"][1:])
        )
        assert told(await refused(worker), "bad", "exit code 7") == ("ContainerExited", [])


async def test_a_snapshot_that_is_larger_than_the_disk_is_refused_by_its_measured_size(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), running("filled", rootfs, "sh", "-c", FILLS)))
        await eventually(lambda: worker.lines("a1", "filled"))
        with small_disk(worker.state.actor("a1").snapshots, "16m"):
            problem = await refused(worker)
            assert told(problem, "are free at") == ("InsufficientDisk", [])
        measured_mib = float(problem["message"].partition("(")[2].partition(" MiB")[0])
        assert 24 <= measured_mib < 40
        status = await worker.suspend("a1")
        (pages,) = worker.state.actor("a1").snapshots.glob("*/pages.img")
        assert status["error"] is None
        assert abs(pages.stat().st_size / (1 << 20) - measured_mib) < 4


@contextmanager
def read_only(directory):
    with small_disk(directory, "64m"):
        subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
        yield


async def test_a_target_that_is_read_only_is_refused(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs)))
        with read_only(worker.state.actor("a1").snapshots):
            assert told(await refused(worker), "Read-only file system") == ("StateUnwritable", [])
        await suspended_after_all(worker)


async def execute(worker, container, script):
    """By runsc itself, past the worker."""
    root, inside = worker.activation() / RUNSC_ROOT, worker.record()["containers"][container]
    argv = [worker.settings.runsc, f"--root={root}", "exec", inside, "sh", "-c", script]
    await anyio.to_thread.run_sync(partial(subprocess.run, argv, timeout=SOON_S, check=True))


async def test_what_a_probe_left_running_refuses_until_it_has_ended(tmp_path, rootfs):
    leaves = {"exec": ["sh", "-c", "while ! [ -e /tmp/go ]; do sleep 0.05; done & exit 0"]}
    async with open_worker(tmp_path) as worker:
        beside = running("beside", rootfs, "sleep", "1000", wakeupProbe=leaves)
        await worker.start(assignment("a1", counting("c1", rootfs), beside))
        assert told(await refused(worker), "executed inside") == ("OperationInProgress", [])
        await execute(worker, "beside", ": > /tmp/go")
        while (await worker.status("a1"))["state"] != "Suspended":
            await worker.ask("suspend", uid="a1")
            await worker.status_when("a1", lambda status: status["state"] in {"Running", "Suspended"})
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")


# --------------------------------------------------------------------------------------------------- live CUDA contexts


@pytest.fixture
def node(tmp_path, rootfs):
    return make_node(tmp_path / "node", "--gpus=2", "--minors=2,3", "--driver=580.65.06")


def on_gpu(tmp_path, rootfs, command, **suspend):
    """An actor of a counter and of a container that claims a GPU and has two more nodes that are called as a driver's.

    The one in /opens can be opened, which no node of a mock node can, as nothing is behind it; the one in /fails is
    such a node.
    """
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for name, path, device in (("opens", "nvidia2", NULL), ("fails", "nvidia3", NOTHING)):
        (tmp_path / name).mkdir()
        os.mknod(tmp_path / name / path, stat.S_IFCHR | 0o666, device)
    config = {
        "ociVersion": "1.0.2",
        "process": {"args": ["sh", "-c", command], "env": ["PATH=/bin"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
        "root": {"path": str(rootfs)},
        "mounts": [
            {"destination": f"/{name}", "type": "bind", "source": str(tmp_path / name), "options": ["rbind", "rw"]}
            for name in ("opens", "fails")
        ],
        "linux": {},
    }
    (bundle / "config.json").write_text(json.dumps(config))
    trainer = {"name": "trainer", "bundle": str(bundle), "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return assignment("a1", counting("c1", rootfs), trainer, suspend=suspend)


HOLDS = "exec 3</opens/nvidia2; echo holds; exec sleep 1000"
FAILS = "ls -l /fails >/dev/null; cat /fails/nvidia3; echo failed; exec sleep 1000"


async def test_a_device_file_that_the_sandbox_holds_open_refuses(tmp_path, rootfs, node):
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(on_gpu(tmp_path, rootfs, HOLDS))
        await eventually(lambda: worker.lines("a1", "trainer"))
        assert told(await refused(worker), "the sandbox holds /dev/nvidia2 open") == ("LiveCudaContext", [])


async def test_a_device_file_that_was_looked_at_and_could_not_be_opened_does_not(tmp_path, rootfs, node):
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(on_gpu(tmp_path, rootfs, FAILS))
        await eventually(lambda: worker.lines("a1", "trainer"))
        await suspended_after_all(worker)
        assert "Thawing" not in worker.states("a1")


async def test_a_process_that_nvml_tells_of_refuses_and_what_it_told_before_does_not(
    tmp_path, rootfs, node, monkeypatch
):
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(on_gpu(tmp_path, rootfs, FAILS))
        node.put(apply(apply(node.state(), "2=process:4711"), "3=process:5"))
        # The monitor looks every 3 s; what it says then stands for 3 s more after the application has let go.
        problem = await until_refused(worker)
        assert problem["reason"] == "LiveCudaContext"
        assert "process computes on /dev/nvidia2: pid 4711" in problem["message"]
        node.put(apply(node.state(), "2=idle"))
        monkeypatch.setattr("actors.steps.live_cuda.STALE_S", SOON_S)  # the monitor's next look may be late
        await suspended_after_all(worker)


async def until_refused(worker):
    """Suspend and resume until a suspend is refused."""
    while (status := await once(worker))["state"] == "Suspended":
        await worker.resume("a1")
    return status["error"]


async def once(worker):
    await worker.ask("suspend", uid="a1")
    return await worker.status_when("a1", lambda status: status["state"] in {"Running", "Suspended"})


async def test_wait_suspends_once_the_application_has_let_go(tmp_path, rootfs, node):
    # Before the worker begins, so that the monitor's first word has it. A node that is opened below a bind mount would
    # not do here: measured on runsc 20240729, the sandbox keeps it open when the application has closed it.
    node.put(apply(node.state(), "2=process:4711"))
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(on_gpu(tmp_path, rootfs, FAILS, onLiveCuda="Wait"))
        await worker.ask("suspend", uid="a1")
        await eventually(lambda: "WaitingForCuda" in worker.state.actor("a1").journal.read_text())
        await worker.counted_on("a1", "c1")
        node.put(apply(node.state(), "2=idle"))
        await worker.reach("a1", "Suspended")
        assert worker.states("a1").count("Suspending") == 1
        await worker.resume("a1")
        await worker.counted_on("a1", "c1")


async def test_checkpoint_is_refused_where_this_runsc_has_no_flags_for_it(tmp_path, rootfs, node):
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(on_gpu(tmp_path, rootfs, HOLDS, onLiveCuda="Checkpoint"))
        await eventually(lambda: worker.lines("a1", "trainer"))
        assert told(await refused(worker), "/dev/nvidia2") == ("CudaCheckpointUnsupported", [])
