"""The house rules, over every file that is or would be committed."""

import os
import subprocess
import sys

import pytest

from tests.needs import ROOT, Tool, need
from tests.tidy import RULES, File

SCRIPTS = [
    path
    for path in [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"]
    if path.is_file() and path.read_text().startswith("#!/usr/bin/env bash\n")
]
NOT_JUDGED = {"LICENSE", "tests/tidy.py"}


@pytest.fixture(scope="module")
def files() -> list[File]:
    need(Tool.GIT)
    # The checkout may belong to somebody else than who runs the tests, which git refuses unless it is told.
    argv = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = []
    for name in filter(None, names):
        path = ROOT / name
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b"\0"
        if b"\0" not in data and name not in NOT_JUDGED:
            found.append(File(name, data.decode()))
    return found


def test_there_are_files_to_judge(files):
    assert {"pyproject.toml", "tests/test_tidy.py"} <= {file.path for file in files}


@pytest.mark.parametrize("rule", RULES, ids=[rule.sentence for rule in RULES])
def test_every_file_keeps_the_rule(files, rule):
    breaches = [f"{file.path}: {breach}" for file in files for breach in rule.breaches(file)]
    assert not breaches, "\n".join([rule.sentence, *breaches])


@pytest.mark.parametrize("rule", RULES, ids=[rule.sentence for rule in RULES])
def test_a_planted_breach_is_found(rule):
    assert list(rule.breaches(rule.planted))


@pytest.mark.parametrize(
    ("path", "banned"),
    [("actors/x.py", True), ("supervisor/x.py", True), ("sim/x.py", True), ("supervisor/host/x.py", False)],
)
@pytest.mark.parametrize("module", ["os", "random", "socket", "subprocess", "time"])
def test_only_the_host_ports_may_import_what_reaches_the_world(path, banned, module):
    argv = ["ruff", "check", "--quiet", "--select", "TID251", "--stdin-filename", path, "-"]
    ruff = subprocess.run(
        [f"{sys.prefix}/bin/{argv[0]}", *argv[1:]],
        cwd=ROOT,
        input=f"import {module}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("TID251" in ruff.stdout) == banned


def test_the_lock_has_a_hash_for_every_package_and_no_address():
    text = (ROOT / "requirements.lock").read_text()
    packages = text.split("\n    # via")[:-1]
    assert len(packages) > 30
    assert all("==" in package and "--hash=sha256:" in package for package in packages)
    assert "://" not in text


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_a_script_can_be_run_parses_and_stops_at_an_error(script):
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text() or "set -uo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)
