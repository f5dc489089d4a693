"""Signals to a real worker: read your settings anew, show what you do, end; and as PID 1 of a fresh PID namespace."""

import json
import os
import signal

import pytest

from supervisor.host import procfs
from tests.needs import Tool, need
from tests.real.process import WorkerProcess, greenroom, wait_until
from tests.real.scenery import assignment, counting, write_assignment

pytestmark = [pytest.mark.runsc, pytest.mark.long]

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
PID_1 = ("unshare", "--fork", "--pid", "--kill-child", "--mount-proc")


@pytest.fixture
def worker(tmp_path, rootfs, slow):
    worker = WorkerProcess(tmp_path, ("--runsc", str(slow.path)))
    yield worker
    worker.give_up()


def entries(worker, event):
    """The lines of the log with this event; the last one may not be whole yet."""
    lines = worker.log.read_bytes().rpartition(b"\n")[0].splitlines()
    return [entry for entry in map(json.loads, lines) if entry.get("event") == event]


def settings(path, **values):
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))


@BACKENDS
def test_sighup_takes_over_what_a_live_worker_can_change_and_ends_no_actor(worker, tmp_path, rootfs, backend):
    file = tmp_path / "worker.toml"
    settings(file, backend=backend, max_actors=9)
    worker.begin("--config", file)
    worker.start(assignment("a1", counting("c1", rootfs)))
    settings(file, backend=backend, max_actors=1, log_level="debug", network="host")
    worker.running.send_signal(signal.SIGHUP)
    wait_until(lambda: entries(worker, "not_reloaded"))
    assert entries(worker, "reloaded")[0]["settings"] == ["log_level", "max_actors"]
    (refused,) = entries(worker, "not_reloaded")
    assert (refused["reason"], refused["settings"]) == ("RestartNeeded", ["network"])
    settings(file, max_actors=0)
    worker.running.send_signal(signal.SIGHUP)
    wait_until(lambda: len(entries(worker, "not_reloaded")) > 1)
    assert entries(worker, "not_reloaded")[1]["reason"] == "ConfigRefused"
    submitted = greenroom("submit", "--run-dir", worker.run_dir, "-", given=json.dumps(another(rootfs)))
    assert submitted.stderr.splitlines()[-1].startswith("error: WorkerFull: ")
    assert worker.status_file("a1")["state"] == "Running"
    assert worker.end() == 0
    assert entries(worker, "step"), "the log was at debug since then"


def another(rootfs):
    return assignment("a2", counting("c1", rootfs))


@BACKENDS
def test_sighup_without_a_file_says_so_and_looks_at_the_assignments(worker, tmp_path, rootfs, backend):
    assignments = tmp_path / "assignments"
    assignments.mkdir()
    write_assignment(assignments, assignment("a1", counting("c1", rootfs)))
    worker.begin("--assignments", assignments, "--backend", backend)
    worker.reach("a1", "Running")
    worker.running.send_signal(signal.SIGHUP)
    wait_until(lambda: entries(worker, "not_reloaded"))
    assert entries(worker, "not_reloaded")[0]["reason"] == "NothingToReload"
    assert worker.status_file("a1")["state"] == "Running"
    assert worker.end() == 0


@BACKENDS
def test_sigusr1_shows_every_actor_and_where_each_task_waits_in_the_middle_of_a_drain_too(
    worker, slow, rootfs, backend
):
    worker.begin("--backend", backend, "--on-drain", "suspend")
    worker.start(assignment("a1", counting("c1", rootfs)))
    slow.hold("create")
    worker.submit(another(rootfs))
    slow.await_arrival("create")
    first = shown(worker)
    assert first[0] == {"a1": "Running", "a2": "Creating"}
    assert any(task.endswith("actor:a2 > step:CreateSandbox") for task in first[1])
    assert all(first[1].values()), "each waits in some function"
    slow.let_go("create")
    worker.reach("a2", "Running")
    slow.hold("checkpoint")
    worker.running.send_signal(signal.SIGTERM)
    slow.await_arrival("checkpoint")
    second = shown(worker)
    assert "Suspending" in second[0].values()
    slow.let_go("checkpoint")
    code = worker.running.wait(timeout=90)
    worker.process = None
    assert (code, worker.left()) == (0, [])


def shown(worker):
    """What SIGUSR1 brings: the state of each actor, and the functions that each task waits in."""
    before = {event: len(entries(worker, event)) for event in ("stands", "waits")}
    number = len(entries(worker, "asked"))
    worker.running.send_signal(signal.SIGUSR1)
    wait_until(lambda: len(entries(worker, "asked")) > number)
    first = entries(worker, "asked")[-1]
    wait_until(lambda: len(entries(worker, "waits")) >= before["waits"] + first["tasks"])
    stands, waits = (entries(worker, event)[before[event] :] for event in ("stands", "waits"))
    return {each["actor"]: each["state"] for each in stands}, {each["task"]: each["waits_in"] for each in waits}


@BACKENDS
def test_as_pid_1_of_a_fresh_pid_namespace_every_signal_does_the_same_and_nothing_is_left(
    tmp_path, rootfs, slow, backend
):
    need(Tool.UNSHARE)
    worker = WorkerProcess(tmp_path, ("--runsc", str(slow.path), "--backend", backend), PID_1)
    try:
        worker.begin("--log-level", "debug")
        (first,) = (
            pid for pid in procfs.process_ids() if (stat := procfs.read_stat(pid)) and stat.parent == worker.running.pid
        )
        worker.start(assignment("a1", counting("c1", rootfs)))
        for signum, event in ((signal.SIGHUP, "not_reloaded"), (signal.SIGUSR1, "asked")):
            os.kill(first, signum)
            wait_until(lambda event=event: entries(worker, event))
        assert worker.status_file("a1")["state"] == "Running"
        os.kill(first, signal.SIGTERM)
        code = worker.running.wait(timeout=90)
        worker.process = None
        assert (code, worker.left()) == (0, [])
        assert "this is PID 1" in entries(worker, "self_check")[0]["message"]
    finally:
        worker.give_up()


def test_a_worker_that_lacks_a_capability_is_refused_before_it_holds_anything(tmp_path, rootfs):
    need(Tool.SETPRIV)
    worker = WorkerProcess(tmp_path, (), ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"))
    try:
        assert worker.begin_without_waiting().wait(timeout=90) == 1
        worker.process = None
    finally:
        worker.give_up()
    assert worker.log.read_text().splitlines()[-1].startswith("error: CapabilityMissing: no sandbox can be started ")
    assert not worker.state.root.exists()
