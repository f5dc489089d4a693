"""`greenroom run` that is asked to leave, for real: what becomes of its actors, its last words, its exit code."""

import json
import signal

import pytest

from tests.real.process import WorkerProcess, greenroom, wait_until
from tests.real.scenery import assignment, counting, goes_on, whole_lines

pytestmark = [pytest.mark.runsc, pytest.mark.long]
UID = "a1"


@pytest.fixture
def worker(tmp_path, slow):
    said = tmp_path / "last-words"
    said.touch()
    flags = ("--runsc", str(slow.path), "--on-drain", "suspend", "--termination-message", str(said))
    worker = WorkerProcess(tmp_path, flags)
    yield worker
    worker.give_up()


def last_line(worker):
    """The last line of the worker's log; what follows it on stderr is for a person."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    assert lines[-1]["event"] == "left"
    return lines[-1]


def last_words(worker):
    return (worker.directory / "last-words").read_text()


def drains(worker):
    wait_until(lambda: b'"draining"' in worker.log.read_bytes())


def test_every_actor_is_suspended_and_the_last_words_tell_of_it(worker, rootfs):
    worker.begin("--drain-timeout", 600)
    worker.start(*(assignment(uid, counting("c1", rootfs)) for uid in ("a1", "a2")))
    assert worker.end() == 0
    assert worker.left() == []
    told = last_line(worker)
    assert {uid: each["state"] for uid, each in told["actors"].items()} == {"a1": "Suspended", "a2": "Suspended"}
    assert (told["late"], told["killed"], told["not_uploaded"], told["not_recovered"]) == ([], [], [], [])
    for uid, each in told["actors"].items():
        assert worker.status_file(uid)["lastGoodSnapshot"]["id"] == each["snapshot"]
        assert f"{uid}: Suspended; snapshot {each['snapshot']} on this worker's disk" in last_words(worker)
    worker.begin()
    worker.become("a1", "resume", "Running")
    log = worker.state.actor("a1").log("c1")
    before = len(whole_lines(log))
    wait_until(lambda: len(whole_lines(log)) > before + 3)
    assert goes_on(whole_lines(log))


def test_an_actor_that_cannot_be_suspended_is_stopped_and_says_why(worker, rootfs):
    worker.begin("--network", "host", "--drain-timeout", 600)
    worker.start(assignment(UID, counting("c1", rootfs)))
    assert worker.end() == 0
    assert worker.left() == []
    told = last_line(worker)["actors"][UID]
    status = worker.status_file(UID)
    assert (told["state"], status["state"]) == ("Terminated", "Terminated")
    assert told["reason"] == status["error"]["reason"] != "WorkerDraining"
    assert "and not suspended" in status["error"]["message"]
    assert f"{UID}: Terminated; {told['reason']}" in last_words(worker)


def test_a_suspend_that_takes_too_long_ends_with_1_and_the_name_of_the_actor(worker, slow, rootfs):
    worker.begin("--drain-timeout", 36)  # of which 12 s are left to end it, on a busy machine
    worker.start(assignment(UID, counting("c1", rootfs)))
    slow.hold("checkpoint")
    assert worker.end() == 1
    assert worker.left() == []
    told = last_line(worker)
    assert told["actors"][UID]["state"] == "Terminated"
    assert UID in told["late"]
    error = worker.log.read_text().splitlines()[-1]
    assert error.startswith("error: StepDeadlineExceeded: the time of the drain was over")
    assert UID in error
    assert last_words(worker).startswith("error: StepDeadlineExceeded: ")


def test_a_snapshot_that_does_not_reach_its_store_ends_with_1(worker, tmp_path, rootfs):
    nowhere = tmp_path / "no-directory"
    nowhere.write_text("")
    worker.begin("--snapshot-store", f"file://{nowhere}/store", "--drain-timeout", 2)
    worker.start(assignment(UID, counting("c1", rootfs)))
    worker.become(UID, "suspend", "Suspended")
    assert worker.end() == 1
    told = last_line(worker)
    assert told["actors"][UID]["state"] == "Suspended"
    assert told["not_uploaded"] == [UID]
    assert worker.log.read_text().splitlines()[-1].startswith("error: SnapshotNotUploaded: ")
    assert "not in its store" in last_words(worker)


def test_a_second_signal_shortens_a_drain_that_hangs(worker, slow, rootfs):
    worker.begin("--drain-timeout", 3600)
    worker.start(assignment(UID, counting("c1", rootfs)))
    slow.hold("checkpoint")
    worker.running.send_signal(signal.SIGTERM)
    slow.await_arrival("checkpoint")
    assert worker.end(signal.SIGINT) == 1
    assert worker.left() == []
    assert UID in last_line(worker)["late"]


def test_a_start_that_is_refused_says_why_in_its_last_words(tmp_path):
    said = tmp_path / "last-words"
    run = greenroom("run", "--state-dir", tmp_path / "s", "--run-dir", tmp_path / "r", "--runsc", tmp_path / "no",
                    "--termination-message", said)  # fmt: skip
    assert run.returncode == 1
    assert said.read_text().splitlines()[0] == run.stderr.splitlines()[-1]
    assert said.read_text().startswith("error: RuntimeUnavailable: ")


def test_last_words_that_cannot_be_written_cost_nothing(tmp_path, slow):
    worker = WorkerProcess(tmp_path, ("--runsc", str(slow.path), "--termination-message", str(tmp_path)))
    try:
        worker.begin()
        assert worker.end() == 0
        assert b'"unwritten"' in worker.log.read_bytes()
    finally:
        worker.give_up()


# ---- at points of a life


POINTS = {
    "create": "start", "start": "start",
    "state": "suspend", "pause": "suspend", "checkpoint": "suspend",
    "restore": "resume", "kill": "stop", "list": "recover",
}  # fmt: skip
"""The command of runsc in the middle of which the signal comes, and what is under way then."""
ENDS = {
    "start": {"Failed"}, "suspend": {"Suspended"}, "resume": {"Suspended"}, "stop": {"Terminated"},
    "recover": {"Suspended", "Failed"},
}  # fmt: skip


def go_to(worker, slow, verb, rootfs):
    op, document = POINTS[verb], assignment(UID, counting("c1", rootfs), counting("c2", rootfs))
    worker.begin("--drain-timeout", 600)
    if op != "start":
        worker.start(document)
    if op == "resume":
        worker.become(UID, "suspend", "Suspended")
    if op == "recover":
        assert worker.end(signal.SIGKILL) == -signal.SIGKILL
    slow.hold(verb)
    match op:
        case "start":
            worker.submit(document)
        case "recover":
            worker.begin_without_waiting("--drain-timeout", 600)
        case _:
            worker.ask(op, uid=UID)
    slow.await_arrival(verb)


@pytest.mark.parametrize("verb", POINTS)
def test_case_023_a_worker_that_is_asked_to_leave_in_the_middle_of_a_command(worker, slow, rootfs, verb):
    go_to(worker, slow, verb, rootfs)
    worker.running.send_signal(signal.SIGTERM)
    drains(worker)
    if POINTS[verb] in {"start", "resume"}:
        slow.forget(verb)  # it is cancelled
    else:
        slow.let_go(verb)  # it is waited for
    assert worker.running.wait(timeout=600) == 0
    assert worker.left() == []
    told = last_line(worker)
    assert told["actors"][UID]["state"] in ENDS[POINTS[verb]]
    assert worker.status_file(UID)["state"] == told["actors"][UID]["state"]
    worker.begin()
    if told["actors"][UID]["state"] != "Terminated":
        worker.become(UID, "resume", "Running")
        worker.become(UID, "stop", "Terminated")
    assert worker.end() == 0
    assert worker.left() == []
