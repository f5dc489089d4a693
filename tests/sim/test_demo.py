"""`greenroom demo`: simulated when asked for, or where gVisor cannot run; it says which in its first line."""

import re
import subprocess
import sys

import pytest

import greenroom
from sim.cli import demo as command
from sim.mock.making import NotPossibleError
from statemachine.problem import ProblemError
from supervisor.cli.demo import GpuNode
from supervisor.cli.gpu_story import Seen, seen
from tests.needs import ROOT, Tool, need


def played(capsys, *arguments):
    code = greenroom.run(["demo", *arguments])
    return code, *capsys.readouterr()


def test_the_simulated_demo_says_so_in_its_first_line_and_plays_the_whole_story(capsys):
    code, out, err = played(capsys, "--simulated")
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith("greenroom demo: simulated, a model of runsc ")
    without, _, with_gpus = out.partition("\nwith GPUs: simulated, ")
    assert re.findall(r"-> (\w+)$", without, re.MULTILINE) == [
        *("Creating", "Verifying", "Running", "Suspending", "Thawing", "Running"),
        *("Suspending", "Releasing", "Suspended"),
        *("Assigned", "Restoring", "Verifying", "Running", "Stopping", "Terminated"),
    ]
    assert re.findall(r"-> (\w+)$", with_gpus, re.MULTILINE) == [
        *("Detecting", "Generating", "Partitioning", "Injecting", "Creating", "Verifying", "Running"),
        *("Suspending", "Releasing", "Suspended", "Assigned"),
        *("Detecting", "Generating", "Partitioning", "Injecting", "Restoring", "Verifying", "Running"),
    ]
    assert "the first suspend was refused, and the actor ran on: HookFailed: the preSuspend hook failed" in without
    assert rest[-1].startswith("seen in the simulation: ")
    assert "proven" not in out


def test_each_container_of_the_second_story_sees_its_own_gpus_and_knows_afterwards_which_it_had(capsys):
    _, out, _ = played(capsys, "--simulated")
    rows = [line.split() for line in out.splitlines() if line.startswith(("  trainer ", "  eval ", "  logger "))]
    control = ["nvidia-uvm", "nvidia-uvm-tools"]
    assert rows == [
        ["trainer", "1", *control, "nvidia2", "nvidiactl", "void", "0:", "nvidia2"],
        ["eval", "1", *control, "nvidia3", "nvidiactl", "void", "0:", "nvidia3"],
        ["logger", "0", "-", "-", "-"],
        ["trainer", "1", *control, "nvidia3", "nvidiactl", "void", "0:", "nvidia3,", "was", "nvidia2"],
        ["eval", "1", *control, "nvidia5", "nvidiactl", "void", "0:", "nvidia5,", "was", "nvidia3"],
        ["logger", "0", "-", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("sight", "said"),
    [
        (Seen(nodes=("nvidia3", "nvidiactl"), visible="void", gpus=((2, None),)), "trainer sees"),
        (Seen(nodes=("nvidia2", "nvidia3"), visible="void", gpus=((2, None), (3, None))), "trainer claims 1"),
        (Seen(nodes=(), visible="", gpus=()), "trainer claims 1"),
    ],
)
def test_a_container_that_sees_anything_else_than_its_claim_is_a_failure(capsys, monkeypatch, sight, said):
    async def look(_eyes, _container):
        return sight

    monkeypatch.setattr(command.ModelEyes, "look", look)
    code, _, err = played(capsys, "--simulated")
    assert code == 1
    assert said in err


def test_ordinals_out_of_order_are_a_failure():
    with pytest.raises(ProblemError, match="ordinals"):
        seen([], "", '{"gpus": [{"ordinal": 1, "now": {"minor": 2}, "atSnapshot": null}]}')


def test_where_no_device_nodes_can_be_made_that_is_said_and_who_else_would_tell_of_the_gpus(monkeypatch, tmp_path):
    async def refuse(*_arguments):
        raise NotPossibleError("no root")

    monkeypatch.setattr(command, "perform", refuse)
    assert command.make_gpu_node(tmp_path / "node") == "no root"


def test_without_a_compiler_the_nodes_own_monitor_tells_of_its_gpus(monkeypatch, tmp_path):
    need(Tool.MKNOD)
    monkeypatch.setenv("PATH", "/nowhere")
    made = command.make_gpu_node(tmp_path / "node")
    assert isinstance(made, GpuNode)
    assert made.gpu_monitor == tmp_path / "node/monitor"
    assert "its own monitor (there is no C compiler (`cc`) in PATH)" in made.where


def test_the_same_seed_plays_the_same_demo(capsys):
    assert played(capsys, "--simulated", "--seed", "5") == played(capsys, "--simulated", "--seed", "5")


@pytest.fixture
def impossible(monkeypatch):
    monkeypatch.setattr(command, "play_for_real", lambda _make: "there is no runsc")


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
    monkeypatch.setattr(command, "play_for_real", lambda _make: None)
    assert played(capsys, "--or-simulated") == (0, "", "")


def test_make_demo_falls_back_to_the_simulated_world():
    makefile = (ROOT / "Makefile").read_text()
    assert "greenroom demo --or-simulated\n" in makefile


def test_help_loads_nothing_of_the_simulator():
    code = "import sys, greenroom; greenroom.run(['--help']); print('sim' in sys.modules, 'trio' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "False False"
