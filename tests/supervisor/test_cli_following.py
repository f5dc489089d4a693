"""`logs`, `logs -f` and `status --watch`, against a worker whose answers are written here."""

import base64
import io
import json

import pytest

import greenroom
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli import logs as logs_command
from supervisor.cli import status_watching
from supervisor.cli.status_watching import as_table

GONE = Problem(step=Step.SUPERVISE, reason=Reason.WORKER_UNREACHABLE, subject="s", message="it has left")


@pytest.fixture
def ran(capfdbinary, monkeypatch):
    """Runs a command line; returns its code, what it wrote to stdout, and the lines of stderr."""

    def run(*arguments):
        code = greenroom.run([*map(str, arguments), "--run-dir", "/run"])
        captured = capfdbinary.readouterr()
        return code, captured.out, captured.err.decode().splitlines()

    return run


class Log:
    """A container's log at the worker. Each read tells one of its `pieces`, until there are no more."""

    def __init__(self, *pieces, states=("Running",)):
        self.pieces, self.states, self.asked = list(pieces), list(states), []
        self.cut_bytes = 0

    def answer(self, offset_bytes=0, **_rest):
        self.asked.append(offset_bytes)
        written = b"".join(self.pieces)
        start = max(offset_bytes, self.cut_bytes)
        data, end = b"", 0
        for piece in self.pieces:
            end += len(piece)
            if end > start:
                data = written[start:end]
                break
        state = self.states[0] if len(self.states) == 1 or data else self.states.pop(0)
        return {
            "data": base64.b64encode(data).decode(),
            "offset_bytes": start,
            "nextOffset_bytes": start + len(data),
            "size_bytes": len(written),
            "state": state,
        }


@pytest.fixture
def worker(monkeypatch):
    """The logs of an actor's containers, by name."""
    found = {"main": Log()}

    def ask(_run_dir, op, **arguments):
        if op == "status":
            return {"containers": [{"name": name} for name in found]}
        return found[arguments["container"]].answer(**arguments)

    async def call(_net, _socket, op, **arguments):
        return ask(None, op, **arguments)

    monkeypatch.setattr(logs_command, "ask", ask)
    monkeypatch.setattr(logs_command, "call", call)
    return found


@pytest.mark.parametrize("flags", [(), ("-f",)], ids=["whole", "followed"])
def test_a_log_is_printed_to_the_byte(worker, ran, flags):
    worker["main"] = Log(b"a\nb", b"\xff\0c\nno", b" end", states=["Running", "Terminated"])
    assert ran("logs", "a1", *flags) == (0, b"a\nb\xff\0c\nno end", [])


@pytest.mark.parametrize("flags", [(), ("-f",)], ids=["whole", "followed"])
def test_of_several_containers_each_line_says_whose_it_is(worker, ran, flags):
    worker["main"] = Log(b"a\nno end", states=["Failed"])
    worker["side"] = Log(b"b\n", states=["Failed"])
    code, out, _err = ran("logs", "a1", *flags)
    assert (code, sorted(out.splitlines())) == (0, [b"main: a", b"main: no end", b"side: b"])


def test_what_is_written_while_a_log_is_printed_is_not_waited_for(worker, ran):
    class Growing(Log):
        def answer(self, offset_bytes=0, **rest):
            found = super().answer(offset_bytes, **rest)
            self.pieces.append(b"more\n")
            return found

    worker["main"] = Growing(b"a\n")
    assert ran("logs", "a1", "-c", "main") == (0, b"a\n", [])


def test_what_is_followed_ends_when_the_actor_has_and_all_of_it_was_printed(worker, ran):
    worker["main"] = Log(b"a\n", b"b\n", states=["Suspended", "Running", "Failed"])
    assert ran("logs", "a1", "-f") == (0, b"a\nb\n", [])


@pytest.mark.parametrize("flags", [(), ("-f",)], ids=["whole", "followed"])
def test_what_is_gone_is_told_on_stderr(worker, ran, flags):
    log = worker["main"] = Log(b"gone\n", b"kept\n", states=["Failed"])
    log.cut_bytes = 5
    code, out, err = ran("logs", "a1", *flags)
    assert (code, out) == (0, b"kept\n")
    assert err == ["main: 5 bytes are gone: the log is bounded, and they were the oldest"]


def test_a_line_without_an_end_is_not_gathered_for_ever(worker, ran, monkeypatch):
    monkeypatch.setattr(logs_command, "LINE_BYTES_MAX", 3)
    worker["main"] = Log(b"aa", b"bb", b"cc", states=["Failed"])
    worker["side"] = Log(states=["Failed"])
    assert ran("logs", "a1") == (0, b"main: aabb\nmain: cc\n", [])


# ---- status --watch


def a_status(*states, problems=()):
    actors = [
        {
            "uid": f"a{number}",
            "name": "[bold]name" if number == 1 else None,
            "generation": 1,
            "state": state,
            "since": "2026-11-29T15:04:05.678Z",
            "containers": [{"name": "main", "state": "Exited", "exitCode": 7}],
            "error": None,
        }
        for number, state in enumerate(states, 1)
    ]
    gpus = [{"state": "Free"}, {"state": "Held"}]
    return {"worker": {"state": "Ready", "gpus": gpus, "problems": list(problems)}, "actors": actors}


@pytest.fixture
def statuses(monkeypatch):
    """What the worker answers, one status after the other, until it leaves; and what it was asked."""
    found, asked = list[object](), list[dict[str, object]]()

    async def call(_net, _socket, _op, **arguments):
        asked.append(arguments)
        if not found:
            raise ProblemError(GONE)
        return {"change": 10 + len(asked), "status": found.pop(0)}

    monkeypatch.setattr(status_watching, "call", call)
    monkeypatch.setattr(status_watching, "PACE_S", 0.0)
    return found, asked


def test_with_json_each_change_is_one_document_a_line(statuses, ran):
    found, asked = statuses
    found += [a_status(), a_status("Running")]
    code, out, err = ran("status", "--watch", "--json")
    assert [json.loads(line) for line in out.splitlines()[:2]] == [a_status(), a_status("Running")]
    assert (code, err[-1]) == (1, "error: WorkerUnreachable: it has left")
    assert [each.get("after") for each in asked] == [None, 11, 12]


def test_without_a_terminal_a_line_is_printed_for_what_has_changed(statuses, ran):
    found, _asked = statuses
    found += [a_status("Creating", "Running"), a_status("Running", "Running"), a_status("Running")]
    code, out, _err = ran("status", "--watch")
    assert code == 1
    assert [line.split() for line in out.decode().splitlines()] == [
        ["a1", "[bold]name", "1", "Creating", "2026-11-29T15:04:05.678Z", "main=Exited(7)", "-"],
        ["a2", "-", "1", "Running", "2026-11-29T15:04:05.678Z", "main=Exited(7)", "-"],
        ["worker", "Ready", "actors", "2", "GPUs", "1", "free", "of", "2"],
        ["a1", "[bold]name", "1", "Running", "2026-11-29T15:04:05.678Z", "main=Exited(7)", "-"],
        ["worker", "Ready", "actors", "1", "GPUs", "1", "free", "of", "2"],
        ["a2", "is", "forgotten"],
    ]


def test_one_actor_is_watched_by_its_uid(statuses, ran):
    found, asked = statuses
    found += a_status("Running")["actors"]
    assert b"a1  [bold]name  1  Running" in ran("status", "a1", "--watch")[1]
    assert asked[0]["uid"] == "a1"


def test_on_a_terminal_it_is_a_table_in_which_no_document_can_write_markup(statuses, monkeypatch):
    found, _asked = statuses
    problem = {"file": "x.yaml", "subject": "[red]s", "reason": "WrongType", "message": "m"}
    found += [a_status("Creating"), a_status("Running", problems=[problem])]
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stdout", terminal)
    assert greenroom.run(["status", "--watch", "--run-dir", "/run"]) == 1
    shown = terminal.getvalue()
    assert "[bold]name" in shown
    assert "x.yaml: [red]s: WrongType: m" in shown
    assert shown.index("Creating") < shown.index("Running")
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is shown again"


def test_the_table_of_one_actor_has_no_line_of_the_worker():
    assert len(as_table(a_status("Running")["actors"][0]).renderables) == 1
