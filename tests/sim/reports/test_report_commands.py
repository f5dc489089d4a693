"""`greenroom sim replay --report --perfetto` and `greenroom sim report`, as a person calls them."""

import json
import stat

import pytest

from greenroom import run
from tests.sim.reports.test_page import text_of


@pytest.fixture
def results(tmp_path, capsys):
    """Two results of one trace, with one number changed."""
    mine = tmp_path / "mine.toml"
    mine.write_text("[suspension]\noversubscribe = false\n")
    found = []
    for name, more in (("before", []), ("after", ["--config", str(mine)])):
        assert run(["sim", "replay", "thundering-herd", "--json", *more]) == 0
        path = tmp_path / f"{name}.json"
        path.write_text(capsys.readouterr().out)
        found.append(path)
    return found


def test_a_replay_writes_its_page_and_its_file_for_perfetto(tmp_path, capsys):
    page, trace = tmp_path / "page.html", tmp_path / "moves.pftrace"
    assert run(["sim", "replay", "bursty-agents", "--report", str(page), "--perfetto", str(trace)]) == 0
    assert "came to Running" in capsys.readouterr().out
    assert "agent-01" in text_of(page.read_bytes())[0]
    assert b"agent-01" in trace.read_bytes()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_the_page_of_a_result_is_that_of_its_replay(tmp_path, capsys):
    first, second, told = tmp_path / "1.html", tmp_path / "2.html", tmp_path / "told.json"
    assert run(["sim", "replay", "mixed", "--config", "troubled", "--json", "--report", str(first)]) == 0
    told.write_text(capsys.readouterr().out)
    assert run(["sim", "report", str(told), "-o", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()


def test_two_results_are_compared(tmp_path, results, capsys):
    page = tmp_path / "page.html"
    assert run(["sim", "report", *map(str, results), "-o", str(page)]) == 0
    text, _ = text_of(page.read_bytes())
    assert "before and after" in text
    assert not capsys.readouterr().out


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path, results):
    other = tmp_path / "other" / "before.json"
    other.parent.mkdir()
    other.write_bytes(results[1].read_bytes())
    page = tmp_path / "page.html"
    assert run(["sim", "report", str(results[0]), str(other), "-o", str(page)]) == 0
    assert f"{results[0]} and {other}" in text_of(page.read_bytes())[0]


def test_a_page_goes_to_stdout_as_well(results, capsys):
    assert run(["sim", "report", str(results[0]), "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


@pytest.mark.parametrize("option", ["--report", "--perfetto"])
def test_what_cannot_be_written_is_told_and_nothing_is_left(tmp_path, option, capsys):
    assert run(["sim", "replay", "bursty-agents", option, str(tmp_path / "nowhere" / "file")]) == 1
    assert "error: OutputUnwritable: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_no_result_is_told_and_the_page_that_was_there_stays(tmp_path, capsys):
    wrong, page = tmp_path / "wrong.json", tmp_path / "page.html"
    wrong.write_text(json.dumps({"v": 1}))
    page.write_text("mine")
    assert run(["sim", "report", str(wrong), "-o", str(page)]) == 1
    told = capsys.readouterr().err
    assert "error: InvalidResult: " in told
    assert "hint: " in told
    assert page.read_text() == "mine"
