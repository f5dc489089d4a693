"""What a worker keeps in memory for ever: only what it uses."""

import gc
import subprocess
import sys

import click

import greenroom
from tests.needs import ROOT

LOOK = """
import sys, greenroom
greenroom.cli.get_command(None, {command!r})
names = "rich", "trio", "obstore", "pynvml", "prometheus_client", "opentelemetry", "h11", "yaml", "actors.admission"
print(*sorted(name for name in names if name in sys.modules))
import rich.table
"""
COLLECTING = """
import gc, sys, greenroom
def run(_arguments):
    before = gc.isenabled()
    greenroom.cli.get_command(None, "run")
    print(before, gc.isenabled(), gc.get_freeze_count() > 10_000)
greenroom.run = run
greenroom.main()
"""


def imported_by(command):
    """Of some large packages, those that a command has taken along; all of them can be imported afterwards."""
    argv = [sys.executable, "-c", LOOK.format(command=command)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_run_takes_none_along_that_it_has_no_use_for():
    assert imported_by("run") == []


def test_run_makes_no_converter_before_it_has_something_to_convert():
    code = "import supervisor.cli.run; from actors.codec import _converter; print(_converter.cache_info().currsize)"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout == "0\n"


def test_the_collector_looks_into_nothing_that_is_imported_and_afterwards_into_all_that_is_made():
    argv = [sys.executable, "-c", COLLECTING]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout == "False True True\n"


def test_who_is_not_the_process_itself_freezes_nothing_by_loading_a_command():
    before = gc.get_freeze_count()
    greenroom.cli.get_command(click.Context(greenroom.cli), "run")
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, before)


def test_a_command_that_shows_tables_has_what_it_needs():
    assert "rich" in imported_by("status")


def test_a_package_that_is_there_already_is_left_there():
    before = sys.modules["click"]
    with greenroom._unseen("click"):
        assert sys.modules["click"] is before
    assert sys.modules["click"] is before
