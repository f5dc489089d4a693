"""The worker's log: whatever happens to the stream that it goes to, whoever logs goes on."""

import io
import json
import logging
import sys
from typing import Any

import pytest
import structlog

from supervisor.logs import LogFormat, configure_logs


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
