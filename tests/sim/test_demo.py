"""`greenroom demo`: simulated when asked for, or where gVisor cannot run; it says which in its first line."""

import re
import subprocess
import sys

import pytest

import greenroom
from sim.cli import demo as command
from tests.needs import ROOT


def played(capsys, *arguments):
    code = greenroom.run(["demo", *arguments])
    return code, *capsys.readouterr()


def test_the_simulated_demo_says_so_in_its_first_line_and_plays_the_whole_story(capsys):
    code, out, err = played(capsys, "--simulated")
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith("greenroom demo: simulated, a model of runsc ")
    assert re.findall(r"-> (\w+)$", out, re.MULTILINE) == [
        *("Creating", "Verifying", "Running", "Suspending", "Releasing", "Suspended"),
        *("Assigned", "Restoring", "Verifying", "Running", "Stopping", "Terminated"),
    ]
    assert rest[-1].startswith("seen in the simulation: ")
    assert "proven" not in out


def test_the_same_seed_plays_the_same_demo(capsys):
    assert played(capsys, "--simulated", "--seed", "5") == played(capsys, "--simulated", "--seed", "5")


@pytest.fixture
def impossible(monkeypatch):
    monkeypatch.setattr(command, "play_for_real", lambda: "there is no runsc")


def test_where_gvisor_cannot_run_the_simulated_world_takes_its_place_if_that_was_asked_for(capsys, impossible):
    code, out, err = played(capsys, "--or-simulated")
    assert (code, err) == (0, "")
    assert "simulated" in out.splitlines()[0]
    assert out.splitlines()[0].count("the real one is not possible here: there is no runsc") == 1


def test_where_gvisor_cannot_run_the_demo_alone_ends_with_77_and_says_why(capsys, impossible):
    code, out, err = played(capsys)
    assert (code, out) == (77, "")
    assert err.startswith("greenroom demo: not possible on this machine: there is no runsc\n")
    assert "--simulated" in err


def test_a_demo_that_was_played_for_real_is_not_simulated(capsys, monkeypatch):
    monkeypatch.setattr(command, "play_for_real", lambda: None)
    assert played(capsys, "--or-simulated") == (0, "", "")


def test_make_demo_falls_back_to_the_simulated_world():
    makefile = (ROOT / "Makefile").read_text()
    assert "greenroom demo --or-simulated\n" in makefile


def test_help_loads_nothing_of_the_simulator():
    code = "import sys, greenroom; greenroom.run(['--help']); print('sim' in sys.modules, 'trio' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "False False"
