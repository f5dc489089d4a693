"""The steps of deploy/Containerfile that install Greenroom, as they stand there, below a scratch directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.deploy.containerfile import read
from tests.needs import ROOT, Tool, need

pytestmark = pytest.mark.long

BOUND_S = 540
"""Of all steps together: below the 600 s (pyproject.toml) after which one test that hangs ends the whole run."""
DIRECTORIES = re.compile(r"(?<![\w/])/(build|wheels|source|opt/greenroom)\b")
FOR_DEVELOPERS = {"hatchling", "hypothesis", "kubernetes_validate", "mypy", "pip", "pytest", "ruff", "tests"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Where the steps have put Greenroom."""
    need(Tool.PACKAGE_INDEX)
    root = tmp_path_factory.mktemp("image")
    programs = root / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = f"{programs}:/usr/bin:/bin"  # HOME stays: pip may be told there which index to ask
    source, until = root, time.monotonic() + BOUND_S
    for each in read()[1][0].instructions:
        if each.word == "WORKDIR":
            source = Path(moved(each.rest, root))
            source.mkdir(parents=True)
        elif each.word == "COPY":
            *names, into = each.words
            for name in names:
                copy(ROOT / name, source / into / (name if into.endswith("/") else ""))
        elif each.word == "RUN":
            command = " && ".join(moved(part, root) for part in each.commands if not part.startswith("apt-get"))
            ended = subprocess.run(
                ["sh", "-ec", command],
                cwd=source,
                env=environment,
                capture_output=True,
                text=True,
                timeout=until - time.monotonic(),
                check=False,
            )
            assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return root / "opt" / "greenroom"


def moved(text: str, root: Path) -> str:
    return DIRECTORIES.sub(lambda match: f"{root}{match[0]}", text)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def run(*argv: str | Path) -> str:
    """What a program says that knows of no checkout."""
    environment = {"PATH": "/usr/bin:/bin"}
    ended = subprocess.run(argv, cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_command_runs_from_its_own_files_and_not_from_a_checkout(installed):
    assert "run" in run(installed / "bin" / "greenroom", "--help")
    program = "import greenroom, supervisor.worker; print(greenroom.__file__, supervisor.worker.__file__)"
    files = run(installed / "bin" / "python3", "-I", "-c", program).split()
    assert all(Path(each).is_relative_to(installed) for each in files)


def test_no_start_compiles_anything_whatever_becomes_of_the_files_times(installed):
    unchecked = 0b01  # PEP 552
    (packages,) = (installed / "lib").glob("python3*/site-packages")
    modules = [
        path for name in ("actors", "anyio", "statemachine", "supervisor") for path in (packages / name).rglob("*.py")
    ]
    assert len(modules) > 300
    flags = {Path(cache_from_source(str(path))).read_bytes()[4:8] for path in modules}
    assert flags == {unchecked.to_bytes(4, "little")}


def test_it_has_what_a_worker_runs_with_and_nothing_that_is_for_developers(installed):
    (packages,) = (installed / "lib").glob("python3*/site-packages")
    names = {path.name.partition("-")[0].removesuffix(".py") for path in packages.iterdir()}
    assert names >= {"anyio", "attrs", "greenroom", "obstore", "pynvml", "statemachine", "watchfiles"}
    assert not names & FOR_DEVELOPERS


def test_each_package_is_of_the_version_that_is_locked(installed):
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    (packages,) = (installed / "lib").glob("python3*/site-packages")
    found = {path.name.removesuffix(".dist-info").rpartition("-")[::2] for path in packages.glob("*.dist-info")}
    assert len(found) > 10
    for name, version in found - {each for each in found if each[0] == "greenroom"}:
        assert locked[next(each for each in locked if each.replace("-", "_").lower() == name.lower())] == version
