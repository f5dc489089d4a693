"""How far a command is: told to a terminal only, and nothing of what is done depends on it."""

import io
import os

import orjson
import pytest

from greenroom import run
from sim.cli.progress import progress
from sim.replay.outlets import ENGINES
from sim.traces.records import Header, Resume
from sim.traces.shipped import shipped
from sim.traces.writing import write_trace
from tests.sim.replay.fast_runs import actor, worker


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def opens_terminal(monkeypatch):
    """Makes stderr one. Called in the test: until it begins, pytest has its own there."""

    def open_():
        found = Terminal()
        monkeypatch.setattr("sys.stderr", found)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        return found

    return open_


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_every_record_comes_through_and_the_bar_ends_at_their_number(opens_terminal, tmp_path, suffix):
    terminal = opens_terminal()
    path = tmp_path / f"trace.{suffix}"
    records = [worker(f"w{number}") for number in range(1000)]
    write_trace(path, Header(source="x"), records)
    with progress(path, "trying") as counted:
        assert list(counted(records)) == records
    assert "trying" in terminal.getvalue()
    assert "1000/1000" in terminal.getvalue()


def test_where_it_is_read_several_times_all_of_them_count(opens_terminal, tmp_path):
    terminal = opens_terminal()
    path = shipped("mixed")
    assert path is not None
    with progress(path, "trying", times=2) as counted:
        for _ in range(2):
            assert len(list(counted(range(360)))) == 360
    assert "360/720" in terminal.getvalue()
    assert "720/720" in terminal.getvalue()


@pytest.mark.parametrize("engine", ENGINES)
def test_both_engines_tell_how_far_they_are_and_make_the_same_of_it(
    opens_terminal, capsys, monkeypatch, tmp_path, engine
):
    terminal = opens_terminal()
    trace = tmp_path / "trace.jsonl"
    records = [worker("w1"), actor("a1"), *(Resume(at_s=10.0 + number, actor="a1") for number in range(70))]
    write_trace(trace, Header(source="x"), records)
    asked = ["sim", "replay", str(trace), "--engine", engine, "--json"]
    assert run(asked) == 0
    assert "72/72" in terminal.getvalue()
    told = capsys.readouterr().out
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert run(asked) == 0
    assert without_cpu(capsys.readouterr().out) == without_cpu(told)


def without_cpu(text):
    return {**orjson.loads(text), "cpu_s": 0}


def test_elsewhere_nothing_is_told(monkeypatch, capsys):
    assert run(["sim", "replay", "bursty-agents"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_no_file_is_not_read_to_count_it(opens_terminal, tmp_path):
    terminal = opens_terminal()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with progress(pipe, "trying") as counted:
        assert list(counted([1, 2])) == [1, 2]
    assert terminal.getvalue() == ""


def test_a_trace_that_cannot_be_read_is_told_once_by_who_reads_it(opens_terminal, tmp_path):
    terminal = opens_terminal()
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(b"no gzip")
    assert run(["sim", "replay", str(torn)]) == 1
    assert terminal.getvalue().count("error: ") == 1
