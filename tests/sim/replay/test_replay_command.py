"""`greenroom sim replay`: a trace in, what came of it out."""

import json

import pytest

from greenroom import run
from sim.replay.outlets import ENGINES
from tests.needs import ROOT

SHIPPED = sorted((ROOT / "sim" / "traces" / "shipped").glob("*.jsonl"))


@pytest.mark.parametrize("trace", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_a_shipped_trace_is_replayed_and_told(trace, capsys):
    assert run(["sim", "replay", str(trace)]) == 0
    told = capsys.readouterr().out
    assert "came to Running" in told
    assert "Held: " in told.splitlines()[-1]


def test_the_result_is_one_document(capsys):
    assert run(["sim", "replay", str(SHIPPED[0]), "--json", "--seed", "7", "--config", "troubled"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = {
        "v", "seed", "engine", "rows", "skipped", "events", "machineEvents", "lifecycles", "virtual_s", "cpu_s",
        "activation_s", "suspend_s", "density", "failures", "faults", "invariants", "verdict", "steps", "slowest",
        "timeline", "occupancy", "cost",
    }  # fmt: skip
    assert names <= document.keys()
    assert (document["v"], document["seed"], document["engine"]) == (1, 7, "fast")
    lengths = {len(series) for name, series in document["timeline"].items() if name != "bucket_s"}
    assert len(lengths) == 1
    assert {len(line) for line in document["occupancy"]["held"]} == lengths


def test_one_number_changed_is_another_result(tmp_path, capsys):
    mine = tmp_path / "mine.toml"
    mine.write_text("[suspension]\noversubscribe = false\n")
    documents = []
    for more in ([], ["--config", str(mine)]):
        run(["sim", "replay", str(ROOT / "sim/traces/shipped/thundering-herd.jsonl"), "--json", *more])
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0]["activation_s"]["p95"] < documents[1]["activation_s"]["p95"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.jsonl"], 1, "error: UnreadableFile: "),
        ([str(SHIPPED[0]), "--config", "nowhere.toml"], 1, "error: UnreadableFile: "),
        ([str(SHIPPED[0]), "--engine", "magic"], 2, "magic"),
        ([], 2, "TRACE"),
    ],
)
def test_what_cannot_be_replayed_is_told_by_its_reason(arguments, code, said, capsys):
    assert run(["sim", "replay", *arguments]) == code
    assert said in capsys.readouterr().err


def test_an_unknown_scheduler_is_refused_and_named(tmp_path, capsys):
    mine = tmp_path / "mine.toml"
    mine.write_text('[placement]\nscheduler = "magic"\n')
    assert run(["sim", "replay", str(SHIPPED[0]), "--config", str(mine)]) == 1
    assert "error: ConfigRefused: " in capsys.readouterr().err


def test_what_a_trace_says_of_itself_is_told_on_one_line_and_to_no_terminal(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text('{"kind":"GreenroomTrace","v":1,"source":"\\u001b[2J\\n\\nmine"}\n')
    assert run(["sim", "replay", str(path)]) == 0
    assert capsys.readouterr().out.startswith(r"\x1b[2J\n\nmine: 0 records")


def test_both_engines_can_be_asked_for():
    assert list(ENGINES) == ["fast", "faithful"]
