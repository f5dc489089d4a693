"""`greenroom sim import` and `greenroom sim generate`, as a person calls them."""

import re

import click
import pytest

import greenroom
from sim.cli.simulator import COMMANDS, sim
from sim.traces.generating.registry import WORKLOADS
from sim.traces.importing.azure_llm import COLUMNS
from sim.traces.importing.openb import NODE_COLUMNS, POD_COLUMNS
from sim.traces.reading import read_trace
from sim.traces.records import EVENTS, Header
from tests.needs import ROOT
from tests.sim.traces.any_records import table

DOCS = (ROOT / "docs/traces.md").read_text()
POD = "p1,12000,16384,1,460,,LS,Running,100,250,110"
REQUEST = "2023-11-16 18:17:03.9799600,4808,10"


def called(capfd, *words):
    """The exit code, stdout and stderr of a call."""
    code = greenroom.run(["sim", *map(str, words)])
    return code, *capfd.readouterr()


def test_a_workload_is_made_by_its_name_seed_and_parameters(capfd, tmp_path):
    path = tmp_path / "t.jsonl.zst"
    words = ("--seed", 4, "--actors", 3, "--workers", 2, "--duration", 900, "--set", "model=H100")
    code, out, err = called(capfd, "generate", "bursty-agents", *words, "-o", path)
    header, records = read_trace(path)
    assert (code, out, err) == (0, f"{path}: {sum(1 for _ in records)} records\n", "")
    assert header.seed == 4
    assert {"actors": 3, "workers": 2, "duration_s": 900.0, "model": "H100"}.items() <= header.notes.items()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("generate", "nothing", "-o", "t"), "'nothing' is not one of"),
        (("generate", "mixed"), "Missing option '-o'"),
        (("generate", "mixed", "-o", "t", "--set", "model"), "'model' is not NAME=VALUE"),
        (("generate", "mixed", "-o", "t", "--set", "hue=1"), "mixed has no parameter 'hue'"),
        (("generate", "mixed", "-o", "t", "--actors", "3"), "mixed has no parameter 'actors'"),
        (("generate", "diurnal", "-o", "t", "--set", "swing=2"), "swing is '2'"),
        (("generate", "mixed", "-o", "t", "--set", "gpus_per_worker=1025"), "no whole number from 0 to 1024"),
        (("generate", "diurnal", "-o", "t", "--set", "gpus=1025"), "no whole number from 0 to 1024"),
        (("generate", "training-with-sidecars", "-o", "t", "--set", "sidecars=64"), "no whole number from 0 to 63"),
        (("import", "f", "-o", "t"), "Missing option '--from'"),
        (("import", "--from", "openb", "-o", "t"), "Missing argument 'FILE…'"),
        (("import", "--from", "journal", "f", "-o", "t", "--seed", "3"), "--seed is for --from azure-llm"),
        (("import", "--from", "azure-llm", "f", "-o", "t", "--fractions", "skip"), "--fractions is for --from openb"),
        (("import", "--from", "openb", "f", "-o", "t", "--unpinned"), "--unpinned is for --from journal"),
        (("import", "--from", "openb", "f", "-o", "t", "--model", "T4"), "--model is for --from azure-llm and journal"),
        (("import", "--from", "azure-llm", "f", "-o", "t", "--model", "T4\n"), "are a model"),
        (("import", "--from", "azure-llm", "f", "-o", "t", "--idle-timeout", "0"), "'0' is neither"),
        (("import", "--from", "azure-llm", "f", "-o", "t", "--idle-timeout", "nan"), "'nan' is neither"),
        (("import", "--from", "azure-llm", "f", "-o", "t", "--prompt-rate", "0"), "0"),
        (("import", "--from", "azure-llm", "f", "-o", "t", "--actors", "0"), "0"),
    ],
)
def test_a_call_that_cannot_be_meant_is_a_matter_of_usage(capfd, tmp_path, monkeypatch, words, why):
    monkeypatch.chdir(tmp_path)
    code, out, err = called(capfd, *words)
    assert (code, out) == (2, "")
    assert why in err
    assert list(tmp_path.iterdir()) == []


def test_pods_are_imported_and_what_was_counted_is_told(capfd, tmp_path):
    nodes = table(tmp_path / "nodes.csv", NODE_COLUMNS, "n1,64000,262144,2,P100")
    pods = table(tmp_path / "pods.csv", POD_COLUMNS, POD)
    path = tmp_path / "t.jsonl"
    code, out, err = called(capfd, "import", "--from", "openb", pods, "--nodes", nodes, "-o", path)
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: 2 records (pods: 1, workers: 1, fractions: round-up, fractionsRoundedUp: 1, ")
    assert called(capfd, "import", "--from", "openb", pods, "--fractions", "skip", "-o", path)[0] == 0
    assert list(read_trace(path)[1]) == []


def test_requests_are_imported_with_every_option(capfd, tmp_path):
    path = table(tmp_path / "requests.csv", COLUMNS, REQUEST)
    words = ("--actors", 2, "--seed", 5, "--skew", 0, "--idle-timeout", "none", "--gpus", 4, "--model", "H100")
    rates = ("--prompt-rate", 4808, "--generation-rate", 10)
    code, out, err = called(capfd, "import", "--from", "azure-llm", path, *words, *rates, "-o", "-")
    assert code == 0
    header, assignment, resume = out.splitlines()
    assert '"seed":5' in header
    assert '"gpus":4' in assignment
    assert '"model":"H100"' in assignment
    assert resume.endswith('"busy_s":2.0}')
    assert err.startswith("-: 2 records (requests: 1, ")


def test_bad_rows_refuse_the_import_and_what_was_there_stays(capfd, tmp_path):
    path = table(tmp_path / "requests.csv", COLUMNS, REQUEST, "x,1,1", "2023-11-16 18:17:04,1,")
    out_path = tmp_path / "t.jsonl"
    out_path.write_text("before")
    code, out, err = called(capfd, "import", "--from", "azure-llm", path, "-o", out_path)
    assert (code, out, out_path.read_text()) == (1, "", "before")
    told = [line for line in err.splitlines() if line.startswith("error: InvalidRow: ")]
    assert [re.search(r"row (\d+)", line)[1] for line in told] == ["4", "3"]  # type: ignore[index]
    assert err.splitlines()[-1] == told[-1]
    assert err.count("hint: ") == 1


def test_bad_rows_are_skipped_and_told_when_that_is_asked_for(capfd, tmp_path):
    path = table(tmp_path / "requests.csv", COLUMNS, REQUEST, *["x,1,1"] * 150)
    code, out, err = called(capfd, "import", "--from", "azure-llm", path, "--skip-bad", "-o", tmp_path / "t.jsonl")
    assert code == 0
    assert out.endswith("badRowsSkipped: 150)\n")
    assert err.splitlines()[0].startswith(f"skipped: {path}: row 3: TIMESTAMP is 'x'")
    assert len(err.splitlines()) == 101
    assert err.splitlines()[-1] == "skipped: 50 rows more"


@pytest.mark.parametrize("form", ["openb", "azure-llm", "journal"])
def test_a_file_that_is_not_there_is_a_reason(capfd, tmp_path, form):
    code, _, err = called(capfd, "import", "--from", form, tmp_path / "none", "-o", tmp_path / "t")
    assert code == 1
    assert err.splitlines()[-1].startswith(f"error: UnreadableFile: {tmp_path}/none cannot be read: No such file")


def test_a_directory_without_journals_is_a_reason(capfd, tmp_path):
    code, _, err = called(capfd, "import", "--from", "journal", tmp_path, "-o", tmp_path / "t")
    assert code == 1
    assert "there is no journal below" in err


def test_journals_of_a_state_directory_are_imported(capfd, tmp_path):
    journal = tmp_path / "w1/actors/a1/journal.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_bytes((ROOT / "tests/formats/current/journal.jsonl").read_bytes())
    words = ("--unpinned", "--worker-gpus", 8, "--model", "H100")
    code, out, _ = called(capfd, "import", "--from", "journal", tmp_path, *words, "-o", "-")
    assert code == 0
    assert '"worker":"w1","gpus":8,"model":"H100"}' in out.splitlines()[1]
    assert "worker" not in out.splitlines()[2]


@pytest.mark.parametrize("name", ["bursty-agents", "thundering-herd"])
def test_a_shipped_trace_is_replayed_by_its_name(capfd, name):
    code, out, err = called(capfd, "replay", name)
    assert (code, err) == (0, "")
    assert out.startswith(f"greenroom sim generate {name}: ")


def test_the_group_tells_its_commands_and_each_is_there(capfd):
    _, out, _ = called(capfd, "--help")
    context = click.Context(sim)
    for name, (_module, _attribute, line) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line[:20])}", out, re.MULTILINE)
        assert sim.get_command(context, name) is not None
    assert sim.get_command(context, "none") is None


# ---------------------------------------------------------------------------------------------------------------- docs


def test_the_documentation_names_every_record_with_its_fields():
    for kind in EVENTS:
        tag = kind.__struct_config__.tag
        (row,) = re.findall(rf"^\| `{tag}` \| (.*) \|$", DOCS, re.MULTILINE)
        for field in kind.__struct_encode_fields__:
            assert field == "at_s" or f"`{field}`" in row, (tag, field)
    for field in Header.__struct_encode_fields__:
        assert f'"{field}"' in DOCS


def test_the_documentation_has_every_option_and_workload():
    for name in ("import", "generate"):
        command = sim.get_command(click.Context(sim), name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert any(option in DOCS for option in parameter.opts), parameter.name
    for name in WORKLOADS:
        assert f"### {name}\n" in DOCS
