"""The settings that `run`, `doctor` and `plan` share: one precedence, one reading, absolute paths."""

from pathlib import Path

import click
import pytest

import greenroom
from actors.ports import DriverPlaces
from actors.runsc.nvproxy import Nvproxy
from supervisor.cli.doctor import doctor
from supervisor.cli.plan import plan
from supervisor.cli.run import run
from supervisor.cli.worker_options import (
    DRIVER_ROOT_VARIABLES,
    NAMES,
    SETTINGS_BYTES_MAX,
    TOOLKIT_DIR_VARIABLES,
    GpuSettings,
    gpu_settings,
    settings_in,
)
from supervisor.settings import CdiSource, Settings
from tests.doctor.test_doctor import NAMES as CHECKS
from tests.needs import ROOT

COMMANDS = [run, doctor, plan]
VARIABLES = [
    "GREENROOM_DRIVER_ROOT", "GREENROOM_TOOLKIT_DIR", "ATE_NVIDIA_DRIVER_ROOT", "ATE_NVIDIA_TOOLKIT_HOST_PATH",
    "GREENROOM_DEV_ROOT", "GREENROOM_PROC_ROOT", "GREENROOM_CDI_SOURCE", "GREENROOM_NVPROXY", "GREENROOM_CONFIG",
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def settings_of(command, *arguments):
    given = [str(argument) for argument in arguments] + (["file.yaml"] if command is plan else [])
    context = command.make_context(command.name, given)
    return gpu_settings(context.params)


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_word_the_defaults_are_those_of_the_settings(command):
    found = settings_of(command)
    defaults = Settings(state_dir=Path("/s"), run_dir=Path("/r"), assignments=None, runsc=Path("/runsc"))
    assert found == {name: getattr(defaults, name) for name in GpuSettings.__annotations__}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_one_can_be_given_and_paths_become_absolute(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    flags = ["--dev-root", "a", "--proc-root", "b", "--driver-root", "c", "--toolkit-dir", "d"]
    flags += ["--gpu-monitor", "e"]
    assert settings_of(command, *flags, "--cdi-source", "host", "--nvproxy", "off") == {
        "places": DriverPlaces(dev_root=tmp_path / "a", proc_root=tmp_path / "b", driver_root=tmp_path / "c"),
        "toolkit_dir": tmp_path / "d",
        "cdi_source": CdiSource.HOST,
        "nvproxy": Nvproxy.OFF,
        "gpu_monitor": tmp_path / "e",
    }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("flag", "variables"),
    [("--driver-root", DRIVER_ROOT_VARIABLES), ("--toolkit-dir", TOOLKIT_DIR_VARIABLES)],
)
def test_a_flag_wins_over_ours_that_over_the_peers_variable_that_over_the_file(
    command, flag, variables, monkeypatch, tmp_path
):
    own, peers = variables
    assert (own.split("_")[0], peers.split("_")[0]) == ("GREENROOM", "ATE")

    def read(found):
        return found["places"].driver_root if flag == "--driver-root" else found["toolkit_dir"]

    file = tmp_path / "greenroom.toml"
    file.write_text(f'{flag.removeprefix("--")} = "/of-the-file"\n')
    config = ("--config", file)
    assert read(settings_of(command, *config)) == Path("/of-the-file")
    monkeypatch.setenv(peers, "/of-the-peers")
    assert read(settings_of(command, *config)) == Path("/of-the-peers")
    monkeypatch.setenv(own, "/of-ours")
    assert read(settings_of(command, *config)) == Path("/of-ours")
    assert read(settings_of(command, *config, flag, "/of-the-flag")) == Path("/of-the-flag")
    # An empty variable is none.
    monkeypatch.setenv(own, "")
    assert read(settings_of(command, *config)) == Path("/of-the-peers")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_other_variables_are_named_after_their_flags(command, monkeypatch):
    monkeypatch.setenv("GREENROOM_DEV_ROOT", "/d")
    monkeypatch.setenv("GREENROOM_PROC_ROOT", "/p")
    monkeypatch.setenv("GREENROOM_CDI_SOURCE", "host")
    monkeypatch.setenv("GREENROOM_NVPROXY", "off")
    found = settings_of(command)
    assert found["places"] == DriverPlaces(dev_root=Path("/d"), proc_root=Path("/p"))
    assert (found["cdi_source"], found["nvproxy"]) == (CdiSource.HOST, Nvproxy.OFF)


def test_a_file_may_have_every_setting_of_a_worker():
    assert {param.name for param in run.params} - {"config"} == NAMES


def test_doctor_and_plan_pass_over_what_only_a_worker_needs(tmp_path):
    file = tmp_path / "greenroom.toml"
    file.write_text('max-actors = 7\nassignments = "/a"\ndev-root = "/d"\n')
    for command in (doctor, plan):
        assert settings_of(command, "--config", file)["places"].dev_root == Path("/d")


@pytest.mark.parametrize("command", ["run", "doctor", "plan"])
@pytest.mark.parametrize(
    "arguments",
    [["--dev-root", ""], ["--cdi-source", "x"], ["--nvproxy", "on"], ["--toolkit-dir", "a\0b"], ["--driver-root", ""]],
)
def test_a_wrong_value_is_a_wrong_command_line(command, arguments, capsys):
    file = ["file.yaml"] if command == "plan" else []
    assert greenroom.run([command, *arguments, *file]) == greenroom.EXIT_USAGE
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("uri", ["", "x", "ftp://host/a", "s3://me:the-password@bucket/a", "s3://"])
def test_a_store_that_is_none_is_a_wrong_command_line_and_its_password_is_not_repeated(uri, capsys):
    assert greenroom.run(["run", "--snapshot-store", uri]) == greenroom.EXIT_USAGE
    said = capsys.readouterr().err
    assert "no URI of a store" in said
    assert "the-password" not in said


@pytest.mark.parametrize(
    "url", ["", "x", "grpc://c:4317", "http://me:the-password@c:4318", "http://c:99999", "http://c/?key=the-password"]
)
def test_a_collector_that_is_none_is_a_wrong_command_line_and_its_password_is_not_repeated(url, capsys):
    assert greenroom.run(["run", "--otlp-endpoint", url]) == greenroom.EXIT_USAGE
    said = capsys.readouterr().err
    assert "of a collector" in said
    assert "the-password" not in said


def test_a_collector_is_named_by_flag_variable_or_file(monkeypatch, tmp_path):
    monkeypatch.delenv("GREENROOM_OTLP_ENDPOINT", raising=False)
    file = tmp_path / "greenroom.toml"
    file.write_text('otlp-endpoint = "https://c/otel"\n')
    flags = ["--otlp-endpoint", "http://[::1]:4318"]
    assert run.make_context("run", flags).params["otlp_endpoint"] == "http://[::1]:4318"
    assert run.make_context("run", ["--config", str(file)]).params["otlp_endpoint"] == "https://c/otel"
    monkeypatch.setenv("GREENROOM_OTLP_ENDPOINT", "http://c:4318")
    assert run.make_context("run", []).params["otlp_endpoint"] == "http://c:4318"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"max-actors = " + b"[" * 5000, "/x.toml is no TOML: its brackets are too deep"),
        (b"max-actors = " + b"9" * 5000, "/x.toml is no TOML: a number in it has thousands of digits"),
        (b"#" * (SETTINGS_BYTES_MAX + 1), "/x.toml is larger than "),
        (b"a = 1 # \xff", "/x.toml is no TOML: byte 8 is not UTF-8"),
        (b"a = ", "/x.toml is no TOML: Invalid value (at end of document)"),
        (b"a = 1", "/x.toml has an unknown setting: a"),
    ],
    ids=["too deep", "too long a number", "too large", "no text", "no TOML", "no setting"],
)
def test_a_file_that_no_reader_reads_is_a_wrong_use(data, says):
    with pytest.raises(click.UsageError) as caught:
        settings_in(data, Path("/x.toml"))
    assert caught.value.message.startswith(says)


def test_every_command_and_every_flag_of_a_worker_stand_in_the_docs():
    text = (ROOT / "docs" / "cli.md").read_text()
    flags = [flag for param in run.params for flag in param.opts]
    assert [flag for flag in flags if f"| `{flag}" not in text] == []
    assert [name for name in greenroom.COMMANDS if f"`{name}" not in text and f"`greenroom {name}`" not in text] == []


def test_every_check_of_the_doctor_stands_in_the_docs():
    text = (ROOT / "docs" / "gpu.md").read_text()
    section = text.partition("## doctor and plan")[2].partition("\n## ")[0]
    assert [name for name in CHECKS if f"`{name}`" not in section] == []
