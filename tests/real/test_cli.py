"""The command line as a contract: exit codes, the last line of stderr, one JSON document, and never a traceback."""

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import pytest

from statemachine.reasons import Reason
from tests.real.process import ENVIRONMENT, GREENROOM, SOON_S, WorkerProcess, greenroom, wait_until
from tests.real.scenery import assignment, counting, exiting, goes_on, running, whole_lines

pytestmark = pytest.mark.runsc


@pytest.fixture
def worker(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path)
    try:
        worker.begin()
        yield worker
    finally:
        worker.give_up()


def command(worker, name, *arguments, given=None, cwd=None):
    return greenroom(name, "--run-dir", worker.run_dir, *arguments, given=given, cwd=cwd)


def document_of(answer):
    """The one JSON document on stdout; json.loads refuses anything beside it."""
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    return json.loads(answer.stdout)


def refused(answer, reason):
    assert answer.returncode == 1, answer
    assert answer.stderr.splitlines()[-1].startswith(f"error: {reason}: "), answer.stderr
    assert "Traceback" not in answer.stderr + answer.stdout
    assert Reason(reason)
    return answer


def test_an_actors_life_by_commands_each_with_one_json_document(worker, tmp_path, rootfs):
    file = tmp_path / "a1.json"
    file.write_text(json.dumps(assignment("a1", counting("c1", rootfs))))
    assert document_of(command(worker, "submit", "--wait", "--json", file)) == [
        {"file": str(file), "uid": "a1", "generation": 1, "effect": "Begun"}
    ]
    assert document_of(command(worker, "wait", "a1", "--for", "Running", "--json"))["state"] == "Running"
    suspended = document_of(command(worker, "suspend", "a1", "--json"))
    assert (suspended["state"], suspended["error"]) == ("Suspended", None)
    # Already there: 0 at once.
    assert document_of(command(worker, "suspend", "a1", "--json"))["state"] == "Suspended"
    assert document_of(command(worker, "resume", "a1", "--json"))["state"] == "Running"
    everything = document_of(command(worker, "status", "--json"))
    assert everything["worker"]["state"] == "Ready"
    assert [actor["uid"] for actor in everything["actors"]] == ["a1"]
    assert document_of(command(worker, "status", "a1", "--json"))["name"] == "actor-a1"
    assert document_of(command(worker, "stop", "a1", "--json"))["state"] == "Terminated"
    assert document_of(command(worker, "submit", "--json", file))[0]["effect"] == "Same"
    assert worker.left() == []


def test_an_actors_life_by_commands_for_a_person(worker, tmp_path, rootfs):
    text = json.dumps(assignment("a1", counting("c1", "busybox"), exiting("once", "busybox", 0)))
    # What is read from stdin has its paths below the current directory.
    answer = command(worker, "submit", "-", given=text, cwd=rootfs.parent)
    assert (answer.returncode, answer.stdout) == (0, "a1: generation 1 Begun\n")
    assert command(worker, "wait", "a1", "--for", "Running").stdout == "a1: Running\n"
    wait_until(lambda: worker.ask("status", uid="a1")["containers"][1]["exitCode"] == 0)
    table = command(worker, "status").stdout.splitlines()
    assert table[0].startswith("worker  Ready  runsc ")
    assert table[1].split() == ["UID", "NAME", "GENERATION", "STATE", "SINCE", "CONTAINERS", "ERROR"]
    row = table[2].split()
    assert (row[:4], row[5:]) == (["a1", "actor-a1", "1", "Running"], ["c1=Running", "once=Exited(0)", "-"])
    wait_until(lambda: len(whole_lines(worker.state.actor("a1").log("c1"))) > 1)
    assert command(worker, "suspend", "a1").stdout == "a1: Suspended\n"
    assert "snapshot       s" in command(worker, "status", "a1").stdout
    lines = command(worker, "logs", "a1", "-c", "c1").stdout.splitlines()
    assert len(lines) > 1
    assert goes_on(lines)
    assert command(worker, "logs", "a1").stdout.splitlines() == [f"c1: {line}" for line in lines]
    assert command(worker, "resume", "--no-wait", "a1").returncode == 0
    assert command(worker, "stop", "a1").stdout == "a1: Terminated\n"


def test_refusals_end_with_1_and_their_reason_on_the_last_line(worker, tmp_path, rootfs):
    worker.submit(assignment("a1", exiting("c1", rootfs, 7)))
    worker.reach("a1", "Failed")
    refused(command(worker, "status", "nobody"), "ActorNotFound")
    refused(command(worker, "suspend", "nobody"), "ActorNotFound")
    refused(command(worker, "suspend", "a1", "--json"), "NothingToSuspend")
    refused(command(worker, "logs", "a1", "-c", "c9"), "InvalidRequest")
    refused(command(worker, "wait", "nobody", "--for", "Running", "--timeout", "0.1"), "ActorNotFound")
    # A state that cannot come any more ends the wait at once, with what went wrong.
    assert "code 7" in refused(command(worker, "wait", "a1", "--for", "Running"), "ContainerFailed").stderr
    refused(command(worker, "submit", tmp_path / "absent.yaml"), "UnreadableFile")
    refused(command(worker, "submit", "-", given="{"), "MalformedDocument")
    broken = json.dumps(assignment("../x", running("c1", rootfs), generation=0))
    answer = refused(command(worker, "submit", "-", given=broken), "InvalidUid")
    assert answer.stderr.count("error: ") > 1, "all problems are told"


def test_a_wait_that_takes_too_long_ends_with_its_reason(worker, rootfs):
    takes_its_time = 'trap "sleep 3; exit 0" TERM; echo up; while :; do sleep 0.02; done'
    worker.start(assignment("a1", running("c1", rootfs, "sh", "-c", takes_its_time)))
    wait_until(lambda: whole_lines(worker.state.actor("a1").log("c1")))
    assert refused(command(worker, "stop", "--timeout", "0", "a1"), "WaitTimeout").stdout == ""
    worker.reach("a1", "Terminated")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("suspend",),
        ("wait", "a1"),
        ("wait", "a1", "--for", "Nowhere"),
        ("status", "--nonsense"),
        ("run", "--max-actors", "0"),
        ("run", "--backend", "uvloop"),
        ("run", "--config", "/nonexistent.toml"),
    ],
)
def test_wrong_usage_ends_with_2(arguments):
    answer = greenroom(*arguments)
    assert answer.returncode == 2, answer
    assert "Traceback" not in answer.stderr
    assert "Usage" in answer.stderr or "Error" in answer.stderr


@pytest.mark.parametrize("op", [("status",), ("suspend", "a1"), ("wait", "a1", "--for", "Running"), ("logs", "a1")])
def test_a_worker_that_cannot_be_reached_is_named(tmp_path, op):
    answer = refused(greenroom(*op, "--run-dir", tmp_path), "WorkerUnreachable")
    assert answer.stdout == ""
    refused(greenroom(*op, "--run-dir", tmp_path / ("long" * 40)), "WorkerUnreachable")


@contextlib.contextmanager
def interrupts_allowed():
    """A shell that runs the tests in its background lets them ignore SIGINT, and what is ignored is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def taken_on(worker):
    """How many connections to its control socket the worker has accepted: SS_CONNECTED in unix_diag's words, 03."""
    path = str(worker.run_dir / "control.sock")
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return sum(line[5] == "03" and line[7:] == [path] for line in lines)


def test_a_command_that_is_interrupted_ends_with_130(worker):
    argv = [*GREENROOM, "wait", "--run-dir", str(worker.run_dir), "nobody", "--for", "Running"]
    with interrupts_allowed():
        waiting = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    with waiting:
        try:
            wait_until(lambda: taken_on(worker) or waiting.poll() is not None)
            waiting.send_signal(signal.SIGINT)
            out, err = waiting.communicate(timeout=SOON_S)
        finally:
            waiting.kill()
    assert (waiting.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_a_reader_that_goes_away_early_is_no_trouble(worker, rootfs):
    worker.start(assignment("a1", counting("c1", rootfs)))
    logs = subprocess.Popen(
        [*GREENROOM, "logs", "--run-dir", str(worker.run_dir), "a1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert logs.stdout
    assert logs.stderr
    with logs, logs.stderr as stderr:
        logs.stdout.close()
        assert b"Traceback" not in stderr.read()
    assert logs.returncode in {0, 1}


def test_validate_needs_no_worker_and_tells_every_problem(tmp_path, rootfs):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(assignment("a1", counting("c1", rootfs))))
    bad.write_text(json.dumps(assignment("a1", counting("c1", rootfs), counting("c1", rootfs), desiredState="Maybe")))
    fine = greenroom("validate", good)
    assert (fine.returncode, fine.stdout) == (0, "")
    wrong = greenroom("validate", good, bad)
    assert wrong.returncode == 1
    assert [line.split(": ")[:3:2] for line in wrong.stdout.splitlines()] == [
        [str(bad), "InvalidValue"],
        [str(bad), "DuplicateContainer"],
    ]
    answer = greenroom("validate", "--json", good, bad)
    assert answer.returncode == 1
    assert [len(each["problems"]) for each in json.loads(answer.stdout)] == [0, 2]


def test_help_and_version_are_told_without_loading_anything(tmp_path):
    assert "suspend" in greenroom("--help").stdout
    assert greenroom("--version").returncode == 0
    for name in ("run", "suspend"):
        assert greenroom(name, "--help").returncode == 0
    assert "Suspending" in greenroom("machine").stdout
