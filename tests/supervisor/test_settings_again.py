"""The settings of a running worker read anew, by the rules of its start: flag, variable, file, default."""

import pytest

from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.cli.run import run, settings_of
from supervisor.cli.settings_again import source_of
from supervisor.cli.worker_options import NAMES, SETTINGS_BYTES_MAX


@pytest.fixture(autouse=True)
def runsc(monkeypatch):
    monkeypatch.delenv("GREENROOM_CONFIG", raising=False)
    monkeypatch.setenv("GREENROOM_RUNSC", "/runsc")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "worker.toml"
    path.write_text('max-actors = 7\non-drain = "stop"\n')
    return path


def started(*arguments):
    """The source of a worker that was started with these flags."""
    source = source_of(run.make_context("run", [str(each) for each in arguments]), settings_of, lambda _level: None)
    assert source is not None
    return source


def test_a_worker_without_a_file_has_no_source():
    assert source_of(run.make_context("run", []), settings_of, print) is None


def test_the_file_is_remembered_by_its_absolute_path(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    source = started("--config", file.name)
    assert (source.path, source.values["max_actors"], frozenset(source.values)) == (file, 7, NAMES)


def test_what_the_file_says_now_is_what_a_start_would_be_told(file):
    source = started("--config", file)
    text = (
        'max-actors = 9\non_drain = "suspend"\ndrain-timeout = 7.5\nlog-level = "debug"\nsnapshot-store = "file:///s"'
    )
    reading = source.reading_of(text.encode())
    assert reading.settings.max_actors == 9
    assert (reading.settings.on_drain, reading.settings.drain_timeout_s) == (OnDrain.SUSPEND, 7.5)
    assert (reading.settings.snapshot_store, reading.values["log_level"]) == ("file:///s", "debug")


def test_what_the_file_says_no_more_is_its_default_again(file):
    source = started("--config", file)
    assert source.reading_of(b"").values["max_actors"] == run.make_context("run", []).params["max_actors"]


def test_a_flag_and_a_variable_win_over_the_file_then_as_before(file, monkeypatch):
    monkeypatch.setenv("GREENROOM_DRAIN_TIMEOUT", "11")
    source = started("--config", file, "--max-actors", 3)
    reading = source.reading_of(b"max-actors = 9\ndrain-timeout = 12\nplatform = 'kvm'")
    assert (reading.settings.max_actors, reading.settings.drain_timeout_s) == (3, 11.0)
    assert reading.settings.platform == "kvm"


def test_what_a_flag_says_is_not_read_in_the_file_as_at_a_start(file):
    source = started("--config", file, "--max-actors", 3)
    assert source.reading_of(b"max-actors = 'many'").settings.max_actors == 3


def test_a_file_that_a_variable_names_is_read_anew_from_what_is_given(file, monkeypatch):
    monkeypatch.setenv("GREENROOM_CONFIG", str(file))
    assert started().reading_of(b"max-actors = 8").settings.max_actors == 8


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"max-actors = ", "is no TOML: Invalid value"),
        (b"max-actors = 0", "max-actors"),
        (b"max-actors = true", "a text or a number"),
        (b"on-drain = 'pray'", "on-drain"),
        (b"colour = 'red'", "unknown setting: colour"),
        (b"\xff", "is no TOML: byte 0 is not UTF-8"),
        (b"#" * (SETTINGS_BYTES_MAX + 1), "is larger than"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(file, data, words):
    with pytest.raises(ProblemError) as raised:
        started("--config", file).reading_of(data)
    problem = raised.value.problem
    assert (problem.reason, problem.subject) == (Reason.CONFIG_REFUSED, str(file))
    assert words in problem.message
