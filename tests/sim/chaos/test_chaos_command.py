"""`greenroom sim chaos`: exit codes, one document, a repro of a few lines for what it has found, refusals by reason."""

import json

import pytest

from greenroom import run
from sim.shrinking.repro import read_repro
from tests.needs import ROOT

FEW = ["sim", "chaos", "--seeds", "0:3", "--processes", "1"]


def test_seeds_without_a_violation_end_with_0_and_tell_of_every_fault(capfd):
    assert run([*FEW, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["verdict"], document["runs"], document["seeds"]) == ("ok", 3, "0:3")
    assert all(each["planned"] >= each["fired"] for each in document["faults"].values())
    assert all(each["checked"] and not each["violated"] for each in document["invariants"].values())


def test_the_same_seeds_are_the_same_bytes_but_for_the_time(capfd):
    documents = []
    for processes in ("1", "2"):
        assert run(["sim", "chaos", "--seeds", "0:3", "--processes", processes, "--json"]) == 0
        document = json.loads(capfd.readouterr().out)
        assert document.pop("cpu_s") > 0
        documents.append(document)
    assert documents[0] == documents[1]


def test_a_planted_bug_ends_with_3_and_prints_a_repro_of_a_few_lines(capfd, tmp_path):
    words = ["sim", "chaos", "--seeds", "0:8", "--processes", "1", "--plant", "killed-before-proof"]
    assert run([*words, "--repros", str(tmp_path)]) == 3
    out = capfd.readouterr().out
    (path, *_) = sorted(tmp_path.iterdir())
    assert f"repro: greenroom sim replay {path}" in out
    repro = read_repro(path.read_bytes(), path=path)
    assert repro.planted == "killed-before-proof"
    assert len(path.read_text().splitlines()) <= 6


@pytest.mark.parametrize(("name", "code"), [("planted-cpu-only", 3), ("frozen-and-called-running", 0)])
def test_replay_runs_a_repro_and_ends_as_chaos_does(capfd, name, code):
    path = ROOT / "tests" / "regressions" / f"{name}.jsonl"
    assert run(["sim", "replay", str(path), "--json"]) == code
    found = json.loads(capfd.readouterr().out)["found"]
    assert bool(found) == bool(code)
    assert run(["sim", "replay", str(path)]) == code
    assert ("GpusAreExact" if code else "nothing was found") in capfd.readouterr().out


@pytest.mark.parametrize("seeds", ["3:3", "4:3", "x", "1", "-1:4"])
def test_what_are_no_seeds_is_refused(capfd, seeds):
    assert run(["sim", "chaos", "--seeds", seeds]) == 2
    assert "A:B" in capfd.readouterr().err


def test_a_configuration_that_is_not_there_is_refused_by_its_reason(capfd, tmp_path):
    assert run([*FEW, "--config", str(tmp_path / "absent.toml")]) == 1
    assert capfd.readouterr().err.splitlines()[-1].startswith("error: UnreadableFile: ")


def test_a_configuration_that_cannot_be_used_is_refused_by_its_reason(capfd, tmp_path):
    (tmp_path / "wrong.toml").write_text("rain = 1\n")
    assert run([*FEW, "--config", str(tmp_path / "wrong.toml")]) == 1
    assert "error: ConfigRefused: " in capfd.readouterr().err
