"""`greenroom sim sweep`: a table, one document, rows as Parquet, refusals by reason."""

import json
import sys

import pytest
from pyarrow import parquet

from greenroom import run
from sim.fleet.config import read_config
from sim.grids.rows import COLUMNS
from sim.replay.fast.engine import replay
from sim.traces.reading import read_trace
from statemachine.reasons import Reason
from tests.needs import ROOT
from tests.sim.grids.in_this_process import TRACE, InThisProcess, trace_file

SWEEP = ["sim", "sweep", str(TRACE), "--processes", "1"]
NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture
def in_this_process(monkeypatch):
    """A process for each chunk takes a second; `test_local.py` has these."""
    monkeypatch.setattr("sim.cli.grid.LocalProcesses", lambda _count: InThisProcess())


@pytest.mark.usefixtures("in_this_process")
def test_each_setting_has_a_line_and_each_run_a_row(capfd, tmp_path):
    argv = [*SWEEP, "--seeds", "3:4", "--set", "suspension.idle_timeout_s=30,inf", "-o", str(tmp_path)]
    assert run(argv) == 0
    head, *lines = capfd.readouterr().out.splitlines()
    assert head.split()[:3] == ["IDLE_TIMEOUT_S", "RUNS", "ACTIVATIONS"]
    assert [line.split()[:2] for line in lines[:2]] == [["30", "1"], ["inf", "1"]]
    assert lines[-2:] == [f"2 rows: {tmp_path / 'sweep.parquet'}", "verdict: Held"]
    assert run(argv) == 0
    assert "2 rows, 2 of them from before" in capfd.readouterr().out
    assert parquet.read_table(tmp_path / "sweep.parquet").column("seed").to_pylist() == [3, 3]


@pytest.mark.usefixtures("in_this_process")
def test_a_row_is_what_one_replay_with_its_seed_and_settings_says(capfd):
    setting = {"suspension.idle_timeout_s": 30}
    assert run([*SWEEP, "--seeds", "4:5", "--set", "suspension.idle_timeout_s=30", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    header, records = read_trace(trace_file())
    result = replay(header, records, config=read_config(None, setting), seed=4)
    (point,) = document["points"]
    assert point["activation_p95_s"]["mean"] == pytest.approx(result.activation_s["p95"], abs=1e-6)
    assert point["cost"]["max"] == result.cost
    assert (document["kind"], document["seeds"], document["output"]) == ("GreenroomSweep", "4:5", None)


@pytest.mark.usefixtures("in_this_process")
def test_chaos_over_an_axis_tells_what_was_found(capfd):
    argv = ["sim", "sweep", "--chaos", "--seeds", "0:1", "--processes", "1", "--set", "faults_max=0,4", "--json"]
    assert run(argv) == 0
    document = json.loads(capfd.readouterr().out)
    assert [point["overrides"] for point in document["points"]] == [{"faults_max": "0"}, {"faults_max": "4"}]
    assert (document["campaign"]["runs"], document["verdict"]) == (2, "ok")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give traces, or --chaos"),
        ([str(TRACE), "--chaos"], "give traces, or --chaos"),
        (["--chaos", "--engine", "fast"], "--chaos goes without --engine"),
        ([str(TRACE), "--set", "x"], "is not NAME=VALUE"),
        ([str(TRACE), "--set", "workers=1", "--set", "workers=2"], "is set twice"),
        ([str(TRACE), "--seeds", "3"], "is not A:B"),
        ([str(TRACE), "--scheduler", NOWHERE, "--processes", "2"], "--scheduler goes without --processes"),
    ],
)
def test_what_is_no_sweep_is_a_usage_error(capfd, arguments, said):
    assert run(["sim", "sweep", *arguments]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere.jsonl"], Reason.UNREADABLE_FILE),
        ([str(TRACE), "--set", "suspension.nap=1"], Reason.CONFIG_REFUSED),
        ([str(TRACE), "--seeds", "0:300000"], Reason.CONFIG_REFUSED),
        (["--chaos", "--set", "rain=1"], Reason.CONFIG_REFUSED),
        (["--chaos", "--config", "nowhere.toml"], Reason.UNREADABLE_FILE),
    ],
)
def test_what_cannot_be_swept_is_refused_by_its_reason(capfd, arguments, reason):
    assert run(["sim", "sweep", *arguments]) == 1
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"error: {reason}: ")


@pytest.mark.parametrize(("module", "more"), [("pyarrow", ["-o", "kept"]), ("distributed", ["--scheduler", NOWHERE])])
def test_without_the_extra_what_needs_it_says_so_and_the_rest_works(capfd, tmp_path, monkeypatch, module, more):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    sweep = ["sim", "sweep", str(TRACE), "--seeds", "0:1"]
    assert run([*sweep, *more]) == 1
    err = capfd.readouterr().err
    assert "greenroom[sweep]" in err
    assert err.splitlines()[-1].startswith("error: SweepUnavailable: ")
    assert list(tmp_path.iterdir()) == []
    assert run([*sweep, "--processes", "1"]) == 0
    assert "verdict: Held" in capfd.readouterr().out


def test_the_documentation_has_every_column():
    text = (ROOT / "docs" / "simulator.md").read_text()
    missing = [name for name, said in COLUMNS.items() if f"| `{name}` | {said.partition(':')[0]} |" not in text]
    assert missing == []
