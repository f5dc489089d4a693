"""What a worker keeps in memory for ever: only what it uses."""

import subprocess
import sys

import greenroom
from tests.needs import ROOT

LOOK = """
import sys, greenroom
greenroom.cli.get_command(None, {command!r})
print(*sorted(name for name in ("rich", "trio", "obstore", "pynvml") if name in sys.modules))
import rich.table
"""


def imported_by(command):
    """Of some large packages, those that a command has taken along; all of them can be imported afterwards."""
    argv = [sys.executable, "-c", LOOK.format(command=command)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_run_takes_none_along_that_it_has_no_use_for():
    assert imported_by("run") == []


def test_a_command_that_shows_tables_has_what_it_needs():
    assert "rich" in imported_by("status")


def test_a_package_that_is_there_already_is_left_there():
    before = sys.modules["click"]
    with greenroom._unseen("click"):
        assert sys.modules["click"] is before
    assert sys.modules["click"] is before
