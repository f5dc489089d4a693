"""The worker's log: whatever happens to the stream that it goes to, whoever logs goes on."""

import io
import json
import logging
import sys
from typing import Any

import pytest
import structlog

from statemachine.states import State
from supervisor.logs import LogFormat, configure_logs, said_of
from tests.fakes.performer import FakePerformer
from tests.supervisor.lives import Bench


@pytest.fixture(autouse=True)
def settings_as_before(logs):  # what it captures with is put back after this
    before = structlog.get_config()
    relay = logging.getLogger("asyncio")
    handlers, propagate = relay.handlers, relay.propagate
    yield
    relay.handlers, relay.propagate = handlers, propagate
    structlog.configure(**before)


class FullDisk(io.RawIOBase):
    """Takes nothing, then everything, as a disk on which room was made."""

    def __init__(self):
        super().__init__()
        self.is_full = True
        self.content = b""

    def writable(self):
        return True

    def write(self, data):
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.content += bytes(data)
        return len(data)


def log(event, **fields):
    structlog.get_logger("greenroom.test").info(event, **fields)


def test_a_line_is_one_json_object():
    stream = io.BytesIO()
    configure_logs(LogFormat.JSON, level="info", stream=stream)
    log("ready", path=b"\xff".decode("utf-8", "surrogateescape"), large=1 << 80, odd={1})
    log("left")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["path"], first["large"], first["odd"]) == ("ready", "\udcff", 1 << 80, "{1}")
    assert second["event"] == "left"


def test_a_log_on_a_full_disk_costs_its_lines_and_goes_on_when_there_is_room():
    disk: Any = FullDisk()
    configure_logs(LogFormat.JSON, level="info", stream=disk)
    for number in range(3):
        log("lost", number=number)
    disk.is_full = False
    log("kept")
    assert json.loads(disk.content)["event"] == "kept"


def test_a_reader_that_has_gone_is_no_trouble(monkeypatch):
    for form in (LogFormat.JSON, LogFormat.CONSOLE, LogFormat.AUTO):
        disk = FullDisk()
        stderr = io.TextIOWrapper(io.BufferedWriter(disk))
        monkeypatch.setattr(sys, "stderr", stderr)
        configure_logs(form, level="info")
        for _ in range(100):
            log("lost", text="x" * 1000)
        disk.is_full = False
        assert disk.content == b""


def test_a_worker_that_was_started_without_stderr_logs_nowhere(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stderr", None)
    for form in LogFormat:
        configure_logs(form, level="info")
        log("nowhere")
    assert capfd.readouterr() == ("", "")


def test_a_level_that_is_changed_holds_for_loggers_that_were_made_before_it():
    stream = io.BytesIO()
    threshold = configure_logs(LogFormat.JSON, level="info", stream=stream)
    made_before = structlog.get_logger("greenroom.test").bind(actor="a1")

    def told():
        stream.truncate(0)
        stream.seek(0)
        for method in ("debug", "info", "warning", "error", "exception"):
            getattr(made_before, method)(method)
        return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]

    assert told() == ["info", "warning", "error", "exception"]
    threshold.use("debug")
    assert told() == ["debug", "info", "warning", "error", "exception"]
    threshold.use("warning")
    assert told() == ["warning", "error", "exception"]


@pytest.mark.parametrize("log_format", [LogFormat.JSON, LogFormat.CONSOLE])
def test_what_looks_like_a_secret_is_in_no_line(log_format, capsysbinary):
    secret = "hunter2-hunter2"
    configure_logs(log_format, level="info")
    log = structlog.get_logger("greenroom.test")
    log.info(
        "asked", message=f"PUT https://me:{secret}@host", more=[{"detail": f"token={secret}"}, (f"sig?token={secret}",)]
    )
    log.error("fault", exc_info=ValueError(f"Authorization: Bearer {secret}"))
    said = capsysbinary.readouterr().err
    assert b"fault" in said
    assert b"***" in said
    assert secret.encode() not in said


@pytest.mark.anyio
async def test_whatever_is_logged_within_a_step_says_whose_it_is_and_which_step():
    stream = io.BytesIO()
    configure_logs(LogFormat.JSON, level="debug", stream=stream)

    class Performer(FakePerformer):
        async def perform(self, command, actor):
            log("deep_within", why="a library's module, which knows of no actor")
            return await super().perform(command, actor)

    bench = Bench()
    bench.performer.__class__ = Performer
    async with bench.running(State.RUNNING):
        log("beside")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    said = [(each["actor"], each["generation"], each["step"]) for each in lines if each["event"] == "deep_within"]
    assert said == [("a1", 1, "assign"), ("a1", 1, "create"), ("a1", 1, "verify")]
    (beside,) = (each for each in lines if each["event"] == "beside")
    assert not {"actor", "generation", "step"} & set(beside)
    transitions = [each for each in lines if each["event"] == "transition"]
    assert transitions
    assert all({"actor", "generation", "event_type"} <= set(each) for each in transitions)


def test_a_log_to_which_nothing_was_bound_says_nothing_of_its_lines():
    stream = io.BytesIO()
    configure_logs(LogFormat.JSON, level="info", stream=stream)
    with said_of(structlog.get_logger("greenroom.test"), step="create"):
        log("within")
    log("after")
    within, after = map(json.loads, stream.getvalue().splitlines())
    assert within["step"] == "create"
    assert "step" not in after
