"""Values on the command line and in a file of settings: read by one rule, refused as usage, never as a fault."""

import os

import pytest

import greenroom
from supervisor.cli.places import PLACE


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e300", "86401", "", "soon"])
@pytest.mark.parametrize(
    "command",
    [["suspend", "a1", "--timeout"], ["wait", "a1", "--for", "Running", "--timeout"], ["run", "--drain-timeout"]],
)
def test_seconds_are_a_number_from_nothing_to_a_day(command, value, capsys):
    assert greenroom.run([*command, value]) == greenroom.EXIT_USAGE
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--state-dir", "--run-dir", "--assignments", "--runsc"])
def test_an_empty_path_is_refused_since_it_would_be_the_working_directory(flag, capsys):
    assert greenroom.run(["run", flag, ""]) == greenroom.EXIT_USAGE
    assert "must not be empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "max-actors = true", "max-actors = 3.7", "max-actors = [1]", "state-dir = ['a']", "state-dir = ''",
        "runsc = 1979-05-27", 'state-dir = "a\\u0000b"', "drain-timeout = nan", "nonsense = 1", "config = 'x'", "= 1",
    ],
)  # fmt: skip
def test_a_file_of_settings_is_read_by_the_rule_of_the_flags(line, tmp_path, capsys):
    file = tmp_path / "greenroom.toml"
    file.write_text(line)
    assert greenroom.run(["run", "--config", str(file)]) == greenroom.EXIT_USAGE
    err = capsys.readouterr().err
    assert "Error" in err
    assert "Traceback" not in err


def test_a_file_of_settings_that_is_none_is_refused_and_not_waited_for(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "absent", "/dev/null"):
        assert greenroom.run(["run", "--config", str(path)]) == greenroom.EXIT_USAGE
    assert "is not a file" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--state-dir", "--run-dir", "--assignments", "--runsc"])
def test_a_path_that_json_cannot_hold_is_refused_before_a_status_has_to_name_it(flag, tmp_path, capsys, monkeypatch):
    awkward = tmp_path / os.fsdecode(b"\xff")
    awkward.mkdir()
    monkeypatch.chdir(awkward)
    for value in (str(awkward), "x"):
        assert greenroom.run(["run", flag, value]) == greenroom.EXIT_USAGE
        assert "is not UTF-8" in capsys.readouterr().err


def test_a_place_is_a_path():
    assert str(PLACE.convert("/x/y", None, None)) == "/x/y"
