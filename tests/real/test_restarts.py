"""A worker that is killed at any point of an actor's life, and another one on what it left: no actor is lost.

Whatever the point, the actor is afterwards Running in the same sandbox, or Suspended or Failed for a reason and with
what it takes to go on; and in the end nothing is left.
"""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.real.onlookers import pids_below, seen_below
from tests.real.process import SOON_S, WorkerProcess, wait_until
from tests.real.scenery import assignment, counting, exiting, goes_on, running, whole_lines

pytestmark = pytest.mark.runsc
LONG = pytest.mark.long
REST = {"Running", "Suspended", "Failed", "Terminated"}
UID = "a1"


@pytest.fixture
def worker(tmp_path, rootfs, slow):
    worker = WorkerProcess(tmp_path, flags=("--runsc", str(slow.path)))
    yield worker
    worker.give_up()


def kill(worker):
    assert worker.end(signal.SIGKILL) == -signal.SIGKILL


def leave_running(worker, *containers):
    """An actor whose worker was killed while it ran."""
    worker.begin()
    worker.start(assignment(UID, *containers))
    kill(worker)


def rest(worker, uid=UID):
    """The actor's status once it rests."""
    return wait_until(lambda: (status := worker.ask("status", uid=uid))["state"] in REST and status)


def record(worker):
    (path,) = worker.state.sandboxes.glob("*/sandbox.json")
    return json.loads(path.read_bytes())


def counts_on(worker, *names, uid=UID):
    """Each container has counted without a hole, from its first number on, and goes on doing so."""
    for name in names or ("c1",):
        log = worker.state.actor(uid).log(name)
        before = len(whole_lines(log))
        wait_until(lambda log=log, before=before: len(whole_lines(log)) > before + 3)
        assert goes_on(whole_lines(log)), name


def marks(worker, uid=UID):
    lines = worker.state.actor(uid).journal.read_bytes().rpartition(b"\n")[0].splitlines()
    return [json.loads(line)["progress"]["mark"] for line in lines if b'"progress"' in line]


def ends_well(worker, uid=UID):
    """Whatever became of it: it can go on, and be ended; and nothing is left."""
    status = rest(worker, uid)
    if status["state"] in {"Suspended", "Failed"}:
        assert status["error"] is None or status["error"]["reason"] == "SupervisorRestarted"
        worker.become(uid, "resume", "Running")
    if status["state"] != "Terminated":
        worker.become(uid, "stop", "Terminated")
    assert worker.left() == []
    assert worker.end() == 0
    assert pids_below(worker.directory) == []


# ---- a sandbox that lives is gone on with


def test_a_running_actor_goes_on_in_its_sandbox_without_a_hole(worker, rootfs):
    worker.begin()
    worker.start(assignment(UID, counting("c1", rootfs), counting("c2", rootfs)))
    before = record(worker)
    for _ in range(2):
        kill(worker)
        worker.begin()
        status = worker.ask("status", uid=UID)
        assert (status["state"], status["error"]) == ("Running", None)
        assert record(worker) == before
        counts_on(worker, "c1", "c2")
    worker.become(UID, "suspend", "Suspended")
    worker.become(UID, "resume", "Running")
    counts_on(worker, "c1", "c2")
    ends_well(worker)


@LONG
def test_an_actor_that_was_restored_goes_on_and_what_is_not_in_its_sandbox_is_remembered(worker, rootfs):
    worker.begin()
    worker.start(assignment(UID, counting("c1", rootfs), exiting("once", rootfs, 0)))
    wait_until(lambda: worker.ask("status", uid=UID)["containers"][1]["exitCode"] == 0)
    for _ in range(2):
        worker.become(UID, "suspend", "Suspended")
        worker.become(UID, "resume", "Running")
        kill(worker)
        worker.begin()
        status = worker.ask("status", uid=UID)
        assert (status["state"], status["containers"][1]["exitCode"]) == ("Running", 0)
        counts_on(worker)
    ends_well(worker)


def test_a_container_that_exits_while_there_is_no_worker_is_told_with_its_code(worker, rootfs):
    command = "while ! [ -e /go ]; do sleep 0.02; done; exit 3"
    leave_running(worker, counting("c1", rootfs), running("c2", rootfs, "sh", "-c", command))
    (root,) = {seen.root for seen in seen_below(worker.state.root)}
    inside = record(worker)["containers"]["c2"]
    runsc = (worker.directory / "slow" / "runsc", f"--root={root}")
    subprocess.run([*runsc, "exec", inside, "sh", "-c", ": > /go"], timeout=60, check=True)
    subprocess.run([*runsc, "wait", inside], timeout=60, check=True, stdout=subprocess.DEVNULL)
    worker.begin()
    wait_until(lambda: worker.ask("status", uid=UID)["containers"][1]["exitCode"] == 3)
    assert worker.ask("status", uid=UID)["state"] == "Running"
    counts_on(worker)
    ends_well(worker)


@LONG
def test_a_sandbox_that_dies_while_there_is_no_worker_is_told(worker, rootfs):
    leave_running(worker, counting("c1", rootfs))
    os.kill(record(worker)["sandbox"]["pid"], signal.SIGKILL)
    worker.begin()
    status = rest(worker)
    assert (status["state"], status["error"]["reason"]) == ("Failed", "SupervisorRestarted")
    assert "its sandbox is gone" in status["error"]["message"]
    ends_well(worker)


@LONG
def test_a_sandbox_that_another_runsc_made_is_ended_and_that_is_told(worker, rootfs):
    leave_running(worker, counting("c1", rootfs))
    script = worker.directory / "slow" / "runsc"
    script.write_text(script.read_text() + "# another one\n")
    worker.begin()
    status = rest(worker)
    assert status["state"] == "Failed"
    assert "another runsc" in status["error"]["message"]
    assert worker.left() == []
    ends_well(worker)


@LONG
def test_a_sandbox_of_another_boot_is_not_believed(worker, rootfs):
    """No record of another boot is looked at: the pids in it may be anybody's."""
    leave_running(worker, counting("c1", rootfs))
    (path,) = worker.state.sandboxes.glob("*/sandbox.json")
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "bootId": "another"}))
    worker.begin()
    assert rest(worker)["state"] == "Failed"
    ends_well(worker)


# ---- killed in the middle of a command


COMMANDS = {
    "create": "start", "start": "start",
    "state": "suspend", "pause": "suspend", "checkpoint": "suspend",
    "restore": "resume", "kill": "stop", "wait": "stop", "list": "restart",
}  # fmt: skip
"""The commands of runsc, and what is asked for to come to them."""


def go_to(worker, slow, verb, rootfs):
    """Come to a command that is held."""
    document = assignment(UID, counting("c1", rootfs), counting("c2", rootfs))
    op = COMMANDS[verb]
    worker.begin()
    if op != "start":
        worker.start(document)
        counts_on(worker, "c1", "c2")
    if op == "resume":
        worker.become(UID, "suspend", "Suspended")
    if op == "restart":
        kill(worker)
    slow.hold(verb)
    match op:
        case "start":
            worker.submit(document)
        case "restart":
            worker.begin_without_waiting()
        case _:
            worker.ask(op, uid=UID)
    slow.await_arrival(verb)


@pytest.mark.parametrize("goes_on_alone", [False, True], ids=["it never ran", "it goes on without its worker"])
@pytest.mark.parametrize(
    "verb", ["checkpoint", *(pytest.param(verb, marks=LONG) for verb in COMMANDS if verb != "checkpoint")]
)
def test_a_worker_that_is_killed_in_the_middle_of_a_command(worker, slow, rootfs, verb, goes_on_alone):
    go_to(worker, slow, verb, rootfs)
    kill(worker)
    if goes_on_alone:
        slow.let_go(verb)
    else:
        slow.forget(verb)
    worker.begin()
    status = rest(worker)
    expected = {"start": "Failed", "resume": "Suspended", "stop": "Terminated"}.get(COMMANDS[verb], "Running")
    assert status["state"] == expected, status
    if expected == "Running":
        counts_on(worker, "c1", "c2")
        worker.become(UID, "suspend", "Suspended")
        worker.become(UID, "resume", "Running")
        counts_on(worker, "c1", "c2")
    ends_well(worker)


@pytest.mark.parametrize(
    "mark",
    [
        "Paused",
        *(
            pytest.param(each, marks=LONG)
            for each in ("FilesWritten", "FilesProven", "ManifestWritten", "SandboxEnded")
        ),
    ],
)
def test_a_worker_that_is_killed_as_soon_as_a_suspend_has_come_so_far(worker, rootfs, mark):
    worker.begin()
    worker.start(assignment(UID, counting("c1", rootfs)))
    counts_on(worker)
    worker.ask("suspend", uid=UID)
    until_s = time.monotonic() + SOON_S
    while mark not in marks(worker):
        assert time.monotonic() < until_s
    kill(worker)
    worker.begin()
    state = rest(worker)["state"]
    # It was somewhere behind the mark; from the manifest on there is only one way.
    assert state in ({"Suspended"} if mark in {"ManifestWritten", "SandboxEnded"} else {"Running", "Suspended"})
    if state == "Running":
        counts_on(worker)
        worker.become(UID, "suspend", "Suspended")
    assert worker.ask("suspend", uid=UID)["state"] == "Suspended"  # the same again: no other answer, no other snapshot
    assert len(list(worker.state.actor(UID).snapshots.glob("*/manifest.json"))) == 1
    worker.become(UID, "resume", "Running")
    counts_on(worker)
    ends_well(worker)


@LONG
def test_a_refused_suspend_that_is_being_thawed_is_thawed_by_the_next_worker(worker, slow, rootfs):
    go_to(worker, slow, "checkpoint", rootfs)
    slow.hold("resume")
    for seen in seen_below(worker.state.root):
        if "checkpoint" in seen.argv:
            os.kill(seen.pid, signal.SIGKILL)
    slow.await_arrival("resume")
    kill(worker)
    for verb in ("checkpoint", "resume"):
        slow.forget(verb)
    worker.begin()
    assert rest(worker)["state"] == "Running"
    counts_on(worker, "c1", "c2")
    ends_well(worker)


@LONG
def test_a_regular_end_leaves_no_sandbox_also_of_those_that_were_taken_over(worker, rootfs):
    leave_running(worker, counting("c1", rootfs))
    worker.begin()
    assert worker.end() == 0
    assert worker.left() == []
