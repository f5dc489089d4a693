"""Real sandboxes in real cgroups: sandbox and gofers are born in their leaves, and the leaves go with them.

What is here of cgroup v2 may offer neither cpu nor memory: then nothing is limited, which is told.
"""

import os
import signal

import pytest

from actors.enter_elf import enter_elf
from supervisor.host import cgroup_files
from tests.go_programs import runsc
from tests.host.cgroup_trees import a_real_cgroup, port_into
from tests.needs import Tool, need, want
from tests.real.process import WorkerProcess
from tests.real.scenery import assignment, counting
from tests.real.stage import eventually, open_worker

pytestmark = [pytest.mark.runsc, pytest.mark.long]
TWO = ("c1", "c2")


@pytest.fixture
def cgroup():
    need(Tool.ROOT)
    want(Tool.CGROUPS)
    with a_real_cgroup() as made:
        yield made


def placed(cgroup):
    """Every process below the actors, by the leaf that it is in: `<uid>/<leaf>`."""
    found = {}
    for leaf in (cgroup / "actors").glob("*/*/cgroup.procs"):
        uid = leaf.parent.parent.name.partition(".")[0]
        found[f"{uid}/{leaf.parent.name}"] = set(cgroup_files.processes(leaf.parent))
    return found


def names(cgroup):
    return sorted(path.name for path in (cgroup / "actors").iterdir() if path.is_dir())


def recorded(record):
    """What the record of an activation says of its processes."""
    return record["sandbox"]["pid"], {name: each["pid"] for name, each in record["gofers"].items()}


@pytest.fixture(params=["measured", pytest.param("current", marks=pytest.mark.campaign)])
def which(request):
    """The settings for this runsc: the one that was measured, or a gVisor of today, built from its module."""
    return {} if request.param == "measured" else {"runsc": runsc()}


@pytest.mark.anyio
async def test_sandbox_and_gofers_are_in_their_leaves_from_start_to_end_and_over_a_suspend(
    tmp_path, rootfs, cgroup, which
):
    """Case 040: what is measured is the sandbox's own, since its activation began, and nothing at rest."""
    port = port_into(cgroup, tmp_path / "membership")
    async with open_worker(tmp_path, cgroups=port, **which) as worker:
        told = (await worker.ask("status"))["worker"]["cgroups"]
        assert told["mode"] == ("leaves" if told["reason"] else "enforced")
        await worker.start(assignment("a1", *(counting(name, rootfs) for name in TWO)))
        for _ in range(2):
            sandbox, gofers = recorded(worker.record())
            found = placed(cgroup)
            assert {sandbox, gofers["pause"]} <= found["a1/sandbox"]
            assert {name: found[f"a1/c-{name}"] for name in TWO} == {name: {gofers[name]} for name in TWO}
            usage = (await worker.status("a1"))["usage"]
            assert (usage["source"], usage["why"]) == ("Cgroup", None)
            assert usage["processes"] >= 4
            assert usage["cpu_usec"] > 0
            before = names(cgroup)
            await worker.become("a1", "suspend", "Suspended")
            assert names(cgroup) == []
            assert (await worker.status("a1"))["usage"]["source"] == "Unspecified"
            await worker.resume("a1")
            assert len(names(cgroup)) == 1
            assert names(cgroup) != before
        await worker.counted_on("a1", "c1")
        os.kill(worker.sandbox_pid(), signal.SIGKILL)
        await worker.reach("a1", "Failed")
        await eventually(lambda: names(cgroup) == [])
    assert cgroup_files.is_populated(cgroup) is False


@pytest.mark.anyio
async def test_a_start_that_fails_leaves_no_cgroup(tmp_path, rootfs, cgroup):
    async with open_worker(tmp_path, cgroups=port_into(cgroup, tmp_path / "membership")) as worker:
        await worker.submit(assignment("a1", {**counting("c1", rootfs), "command": ["/no/such/command"]}))
        await worker.reach("a1", "Failed")
        assert names(cgroup) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_worker_moves_itself_out_of_the_way_and_one_after_it_sweeps_and_goes_on(tmp_path, rootfs, cgroup, backend):
    program = tmp_path / "enter"
    program.write_bytes(enter_elf(os.uname().machine))
    program.chmod(0o755)
    flags = ("--backend", backend, "--cgroup-root", str(cgroup.parent))
    worker = WorkerProcess(tmp_path, flags, before=(str(program), str(cgroup / "cgroup.procs")))
    try:
        worker.begin()
        assert worker.running.pid in cgroup_files.processes(cgroup / "greenroom")
        assert cgroup_files.processes(cgroup) == ()
        worker.start(assignment("a1", counting("c1", rootfs)))
        worker.end(signal.SIGKILL)
        (cgroup / "actors" / "gone.a0123456789abcdef").mkdir()
        (lives,) = (name for name in names(cgroup) if name.startswith("a1."))
        worker.before = (str(program), str(cgroup / "greenroom" / "cgroup.procs"))
        worker.begin()
        assert worker.reach("a1", "Running")["state"] == "Running"
        assert names(cgroup) == [lives]
        assert worker.ask("status", uid="a1")["usage"]["processes"] >= 3
        assert worker.end() == 0
        assert names(cgroup) == []
    finally:
        worker.give_up()


def test_a_worker_that_must_enforce_limits_and_cannot_does_not_start(tmp_path, rootfs, cgroup):
    worker = WorkerProcess(tmp_path, ("--cgroups", "require", "--cgroup-root", str(cgroup.parent)))
    try:
        process = worker.begin_without_waiting()
        assert process.wait(timeout=60) == 1
        assert b"CgroupUnavailable" in worker.log.read_bytes()
    finally:
        worker.give_up()
