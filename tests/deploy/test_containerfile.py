"""deploy/Containerfile: its pins are those of the checkout, and it ships what it says."""

from __future__ import annotations

import re
import subprocess
import tomllib

import click
import pytest

from greenroom import cli
from tests.deploy.containerfile import read
from tests.needs import OLDEST_RUNSC, ROOT, Tool, beside_interpreter_or_in_path, need

ARGUMENTS, STAGES = read()
BUILT, RUNTIME, SHIPPED = STAGES
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FETCH_RUNTIME = (ROOT / "scripts" / "fetch-runtime").read_text()


def pinned(name: str) -> str:
    (value,) = [each.rest.partition("=")[2] for each in RUNTIME.all("ARG") if each.rest.startswith(f"{name}=")]
    return value


def copied_from_checkout() -> set[str]:
    copies = [each for stage in STAGES for each in stage.all("COPY") if "from" not in each.flags]
    return {source for each in copies for source in each.words[:-1]}


def test_every_stage_is_of_one_debian_the_one_that_runsc_is_from():
    assert [stage.base for stage in STAGES] == ["${BASE}"] * 3
    (suite,) = re.findall(r"^readonly SUITE=(\w+)", FETCH_RUNTIME, re.MULTILINE)
    assert list(ARGUMENTS.items()) == [("BASE", f"debian:{suite}-slim")]


def test_what_is_copied_is_there_and_is_all_that_the_wheel_is_made_of():
    assert all((ROOT / each).exists() for each in copied_from_checkout())
    packed = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    licenses = set(PROJECT["project"]["license-files"])
    assert copied_from_checkout() == {"pyproject.toml", "requirements.lock", *packed, *licenses}


def test_the_builder_is_given_what_is_copied_and_nothing_else_of_a_checkout():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied_from_checkout()


def test_every_package_is_one_of_the_lock_by_its_hash():
    pip = [command for run in BUILT.all("RUN") for command in run.commands if "/pip " in command]
    download, *others = pip
    assert "--require-hashes --requirement requirements.lock" in download
    assert "--only-binary :all:" in download
    assert len(others) == 2
    assert all("--no-index --find-links /wheels" in command for command in others)
    assert not any("--editable" in command or " -e " in command for command in pip)


def test_runsc_is_one_build_of_debians_package_for_each_architecture_and_new_enough():
    (date,) = re.findall(r"~(20\d{6})\.", pinned("RUNSC_VERSION"))
    assert int(date) >= OLDEST_RUNSC
    (architectures,) = re.findall(r"^ +(\w+ \| \w+)\) ;;$", FETCH_RUNTIME, re.MULTILINE)
    for each in architectures.split(" | "):
        assert re.fullmatch(r"[0-9a-f]{64}", pinned(f"RUNSC_SHA256_{each.upper()}"))
        assert f"{each}) digest=${{RUNSC_SHA256_{each.upper()}}} ;;" in RUNTIME.all("RUN")[0].rest
    assert "sha256sum --check" in RUNTIME.all("RUN")[0].rest


def test_runsc_is_the_release_that_this_checkout_is_tested_with():
    need(Tool.RUNSC)
    runsc = beside_interpreter_or_in_path("runsc")
    assert runsc
    says = subprocess.run([runsc, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    (date,) = re.findall(r"20\d{6}", says.splitlines()[0])
    assert f"~{date}." in pinned("RUNSC_VERSION")


def test_what_is_started_is_a_command_of_ours_and_needs_no_shell():
    (entry,) = SHIPPED.all("ENTRYPOINT")
    program, command = entry.exec_form
    (script,) = PROJECT["project"]["scripts"]
    assert program == f"/opt/greenroom/bin/{script}"
    assert command in cli.list_commands(click.Context(cli))


def test_runsc_lies_beside_the_interpreter_and_the_command_is_in_the_path():
    copies = {each.flags["from"]: each.words for each in SHIPPED.all("COPY")}
    assert copies["built"] == ["/opt/greenroom", "/opt/greenroom"]
    assert copies["runtime"][1] == "/opt/greenroom/bin/runsc"
    assert set(copies) <= {stage.name for stage in STAGES}
    (path,) = SHIPPED.all("ENV")
    assert path.rest.startswith("PATH=/opt/greenroom/bin:")


def test_the_worker_is_root_and_ended_as_it_expects():
    assert [each.rest for each in SHIPPED.all("USER")] == ["0:0"]
    assert [each.rest for each in SHIPPED.all("STOPSIGNAL")] == ["SIGTERM"]


@pytest.mark.parametrize("stage", STAGES, ids=["built", "runtime", "shipped"])
def test_packages_of_debian_are_installed_from_fresh_lists_and_without_what_they_only_recommend(stage):
    for run in stage.all("RUN"):
        installs = [command for command in run.commands if command.startswith(("apt-get install", "apt-get download"))]
        assert all("--no-install-recommends" in each for each in installs if "install" in each)
        assert not installs or run.commands[0] == "apt-get update"


def test_nothing_of_the_builder_stays_in_what_is_shipped():
    installed = [command for run in SHIPPED.all("RUN") for command in run.commands if "apt-get install" in command]
    assert len(installed) == 1
    assert installed[0].endswith("--no-install-recommends ca-certificates python3")
    assert "rm -rf /var/lib/apt/lists/*" in SHIPPED.all("RUN")[0].commands
    assert any("venv --without-pip /opt/greenroom" in command for run in BUILT.all("RUN") for command in run.commands)
