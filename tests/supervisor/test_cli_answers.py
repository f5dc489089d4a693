"""What commands print, without a worker: failures as one JSON document, files by names that a terminal can bear."""

import errno
import json
import os
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import greenroom
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli import executing, inspection, requests
from supervisor.host.foreground import Ended

AWKWARD = os.fsdecode(b"a\xff\x1b[2J\n.json")
LABEL = r"a\udcff\x1b[2J\n.json"


def ran(capsys, *arguments):
    code = greenroom.run(list(map(str, arguments)))
    return code, *capsys.readouterr()


def a_problem(**fields):
    return Problem(
        step=Step.CREATE, reason=Reason.RUNTIME_FAILED, subject="web", message="runsc failed", hint="look", **fields
    )


@pytest.fixture
def worker(monkeypatch):
    """What the worker answers to each operation: a value, or a problem that it refuses with."""
    answers: dict[str, Any] = {}

    def ask(_run_dir, op, **_arguments):
        answer = answers[op]
        if isinstance(answer, ProblemError):
            raise answer
        return answer

    for module in (executing, inspection, requests):
        monkeypatch.setattr(module, "ask", ask)
    return answers


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--json"], ["status", "a1", "--json"], ["suspend", "a1", "--json"], ["resume", "a1", "--json"],
        ["stop", "a1", "--json"], ["wait", "a1", "--for", "Running", "--json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_that_fails_with_json_prints_its_problems_as_one_document(arguments, tmp_path, capsys):
    code, out, err = ran(capsys, *arguments, "--run-dir", tmp_path)
    assert code == 1
    document = json.loads(out)
    assert document["ok"] is False
    assert document["errors"] == [document["error"]]
    assert set(document["error"]) == {"step", "reason", "subject", "message", "hint", "detail"}
    assert document["error"]["reason"] == "WorkerUnreachable"
    assert err.splitlines()[-1] == f"error: WorkerUnreachable: {document['error']['message']}"


def test_without_json_a_failure_is_on_stderr_alone(tmp_path, capsys):
    code, out, err = ran(capsys, "status", "--run-dir", tmp_path)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 2


def test_a_fault_of_ours_is_a_document_as_well(worker, capsys):
    worker["status"] = None
    assert json.loads(ran(capsys, "status", "--json")[1]) is None
    worker.clear()
    code, out, _err = ran(capsys, "status", "--json")
    assert (code, json.loads(out)["error"]["reason"]) == (1, "Internal")


def test_documents_of_which_some_are_refused_are_one_list_in_which_each_file_has_its_place(worker, tmp_path, capsys):
    (tmp_path / "good.json").write_text("{}")
    worker["submit"] = {"uid": "a1", "generation": 1, "effect": "Begun"}
    code, out, err = ran(capsys, "submit", "--json", tmp_path / "absent", tmp_path / "good.json")
    assert code == 1
    absent, good = json.loads(out)
    assert absent["file"] == str(tmp_path / "absent")
    assert absent["error"]["reason"] == "UnreadableFile"
    assert absent["errors"] == [absent["error"]]
    assert good == {"file": str(tmp_path / "good.json"), "uid": "a1", "generation": 1, "effect": "Begun"}
    assert err.splitlines()[-1].startswith(f"error: UnreadableFile: {tmp_path}/absent: document: ")


def test_a_file_that_cannot_be_read_is_named_once_and_its_reason_is_the_last_line_of_stderr(tmp_path, capsys):
    code, out, err = ran(capsys, "validate", tmp_path / "absent")
    assert code == 1
    assert out == f"{tmp_path}/absent: document: UnreadableFile: the file cannot be read: No such file or directory\n"
    assert err.splitlines()[-1].startswith(f"error: UnreadableFile: {tmp_path}/absent: ")


@pytest.mark.parametrize("arguments", [["validate"], ["validate", "--json"], ["submit"], ["submit", "--json"]])
def test_a_file_whose_name_is_no_text_is_named_by_escapes(arguments, worker, tmp_path, capsys):
    for name in (AWKWARD, f"absent-{AWKWARD}"):
        (tmp_path / AWKWARD).write_text("")
        worker["submit"] = ProblemError(a_problem())
        code, out, err = ran(capsys, *arguments, tmp_path / name)
        assert code == 1
        said = "".join(map(str, json.loads(out))) if "--json" in arguments else out + err
        assert LABEL in said.replace(r"\\", "\\")
        assert all(line.isprintable() for line in (out + err).splitlines())


@pytest.mark.parametrize("detail", ["runsc failed", " runsc failed \n", ""])
def test_what_runsc_said_is_said_once_by_every_command(detail, worker, tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    worker["submit"] = ProblemError(a_problem(detail=detail))
    assert ran(capsys, "submit", tmp_path / "x.json")[2].count("runsc failed") == 1
    error = {"step": "create", "reason": "RuntimeFailed", "message": "runsc failed", "hint": "look", "detail": detail}
    worker["status"] = {
        "uid": "a1", "state": "Failed", "since": "now", "generation": 1, "desiredState": "Running", "containers": [],
        "lastGoodSnapshot": None, "error": error,
    }  # fmt: skip
    assert ran(capsys, "status", "a1")[1].count("runsc failed") == 1


def test_a_refusal_in_the_status_says_where_in_the_document(worker, capsys):
    problem = {"file": "x.json", "subject": "spec.containers[0].name", "reason": "WrongType", "message": "it is a list"}
    worker["status"] = {
        "worker": {
            "state": "Ready", "runsc": {"version": "1", "platform": "systrap"}, "network": "none",
            "problems": [problem],
        },
        "actors": [],
    }  # fmt: skip
    out = ran(capsys, "status")[1]
    assert "refused x.json: spec.containers[0].name: WrongType: it is a list\n" in out


@pytest.mark.parametrize("waits", [[], ["--no-wait"]])
def test_an_actor_that_is_resumed_without_a_snapshot_is_said_to_start_anew(waits, worker, capsys):
    for starts_anew in (True, False):
        worker["resume"] = {"state": "Assigned", "startsAnew": starts_anew}
        worker["wait"] = {"uid": "a1", "state": "Running"}
        assert ("started anew" in ran(capsys, "resume", "a1", *waits)[1]) is starts_anew
        document = json.loads(ran(capsys, "resume", "a1", *waits, "--json")[1])
        assert document["startsAnew"] is starts_anew
        assert document["state"] == ("Assigned" if waits else "Running")


@pytest.mark.parametrize(("words", "wanted"), [([], "Refuse"), (["--force"], "Force")])
def test_a_resume_says_whether_it_wants_the_snapshot_restored_whatever_differs(words, wanted, monkeypatch, capsys):
    asked = {}

    def ask(_run_dir, op, **arguments):
        asked[op] = arguments
        return {"state": "Assigned", "startsAnew": False}

    monkeypatch.setattr(requests, "ask", ask)
    assert ran(capsys, "resume", "a1", "--no-wait", *words)[0] == 0
    assert asked == {"resume": {"uid": "a1", "onDifference": wanted}}
    assert ran(capsys, "suspend", "a1", "--no-wait")[0] == 0
    assert asked["suspend"] == {"uid": "a1"}


def test_the_status_of_an_actor_says_that_its_restore_was_forced(worker, capsys):
    worker["status"] = {
        "uid": "a1", "state": "Running", "since": "now", "generation": 1, "desiredState": "Running", "containers": [],
        "lastGoodSnapshot": None, "error": None, "forced": True,
    }  # fmt: skip
    assert "forced  " in ran(capsys, "status", "a1")[1]
    worker["status"]["forced"] = False
    assert "forced" not in ran(capsys, "status", "a1")[1]


@pytest.mark.parametrize(("count", "says"), [(1, "GpuErrorReported, last then"), (3, "GpuErrorReported, 3 times,")])
def test_the_status_of_an_actor_says_with_what_troubles_it_runs_on(count, says, worker, capsys):
    notice = {"reason": "GpuErrorReported", "subject": "/dev/nvidia2 XID 13", "message": "XID 13 of /dev/nvidia2",
              "hint": "look", "count": count, "first": "first", "last": "then"}  # fmt: skip
    worker["status"] = {
        "uid": "a1", "state": "Running", "since": "now", "generation": 1, "desiredState": "Running", "containers": [],
        "lastGoodSnapshot": None, "error": None, "notices": [notice],
    }  # fmt: skip
    said = ran(capsys, "status", "a1")[1]
    assert says in said
    assert said.endswith(": XID 13 of /dev/nvidia2\n")


@pytest.mark.parametrize("stored", [None, "s3://bucket/a1/s1"])
def test_the_status_of_an_actor_says_where_its_snapshot_is_stored(stored, worker, capsys):
    snapshot = {"id": "s1", "createdAt": "then", "uri": "file:///here/s1", "storedUri": stored}
    worker["status"] = {
        "uid": "a1", "state": "Suspended", "since": "now", "generation": 1, "desiredState": "Running",
        "containers": [], "lastGoodSnapshot": snapshot, "error": None,
    }  # fmt: skip
    said = [line.split() for line in ran(capsys, "status", "a1")[1].splitlines()]
    assert ["snapshot", "s1", "of", "then", "at", "file:///here/s1"] in said
    assert [line[1] for line in said if line[0] == "stored"] == ([stored] if stored else [])


def test_who_does_not_say_in_which_of_several_containers_is_told_how_to(worker, capsys):
    worker["status"] = {"containers": [{"name": "one"}, {"name": "two"}]}
    code, out, err = ran(capsys, "exec", "m1", "--", "sh")
    assert (code, out) == (1, "")
    hint, error = err.splitlines()
    assert hint == "hint: `greenroom exec m1 -c NAME -- COMMAND…`, and NAME is one of one, two."
    assert error.startswith("error: InvalidRequest: ")


def test_it_is_a_failure_when_not_all_that_a_command_wrote_could_be_written(monkeypatch, capsys, tmp_path):
    @asynccontextmanager
    async def holding(*_arguments, **_named):
        await anyio.lowlevel.checkpoint()
        yield dict.fromkeys(("argv", "env", "stdin"), None) | {"streams": "", "log": str(tmp_path / "absent")}

    def run_in_foreground(*_argv, **_streams):
        return Ended(code=0, has_left_something=False, unwritten=OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(executing, "holding", holding)
    monkeypatch.setattr(executing, "run_in_foreground", run_in_foreground)
    code, out, err = ran(capsys, "exec", "m1", "-c", "one", "--", "tar")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == (
        "error: OutputUnwritable: not all that the command wrote could be written: No space left on device; "
        "it ended with exit code 0"
    )
