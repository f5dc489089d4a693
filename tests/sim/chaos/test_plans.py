"""Plans: drawn from a seed and nothing else, the same in every process, each kind of fault among them; their files."""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from sim.chaos import running
from sim.chaos.config import CampaignConfig, read_config
from sim.chaos.drawing import plan_of
from sim.chaos.kinds import KINDS, PORT_KINDS, fault_kind, mishap_kind
from sim.chaos.plan import CONVERTER, MISHAPS, Plan
from sim.chaos.port_faults import METHODS
from sim.faults import PORTS
from sim.shrinking.repro import Repro, is_repro, read_repro, repro_as_lines
from sim.world.world import World
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.needs import ROOT

PLANS = [plan_of(seed) for seed in range(600)]
HERE = Path("here.toml")


def kinds_of(plan):
    mishaps = {mishap_kind(deed) for deed in plan.deeds if isinstance(deed, MISHAPS)}
    return mishaps | {fault_kind(fault) for fault in plan.faults}


def test_a_seed_gives_one_plan_and_another_seed_another():
    assert plan_of(7) == PLANS[7]
    assert len({repr(plan) for plan in PLANS}) == len(PLANS)


@pytest.mark.parametrize("hash_seed", ["1", "4711"])
def test_a_plan_is_the_same_in_every_process(hash_seed):
    code = "from sim.chaos import drawing, plan; print(plan.CONVERTER.unstructure(drawing.plan_of(7)))"
    argv = [sys.executable, "-c", code]
    env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(CONVERTER.unstructure(PLANS[7]))


def test_every_kind_of_fault_is_drawn_and_most_runs_have_none_of_most_kinds():
    assert set().union(*map(kinds_of, PLANS)) == set(KINDS)
    assert max(map(len, map(kinds_of, PLANS))) <= 10


def test_every_port_but_signals_is_disturbed():
    assert set(METHODS) == PORTS - {"signals"}
    assert {kind.partition(".")[0] for kind in PORT_KINDS} == set(METHODS)


UNDISTURBED = {
    *(("wall", method) for method in ("boot_id", "cpu_features", "fresh_id", "machine")),
    *(("signals", method) for method in ("next", "receive")),
    ("files", "unlock"),
    ("net", "close"),
    ("processes", "close"),
}
"""Which the kernel does not fail, and which nobody waits for."""


def test_there_is_no_call_of_a_worker_that_no_fault_can_meet(monkeypatch):
    worlds = []

    def seen(**given):
        worlds.append(World(**given))
        return worlds[-1]

    monkeypatch.setattr(running, "World", seen)
    for seed in range(12):
        running.run_plan(plan_of(seed))
    made = {(call.port, call.method) for world in worlds for call in world.ledger.calls}
    assert len(made) > 50
    assert made - {(port, method) for port in METHODS for method in METHODS[port]} <= UNDISTURBED


def test_nobody_claims_more_gpus_than_there_are():
    assert all(actor.gpus <= plan.gpus for plan in PLANS for actor in plan.actors)


def test_a_kind_without_weight_never_comes():
    config = CampaignConfig(weights=dict.fromkeys(KINDS, 0.0) | {"cut-power": 1.0})
    assert set().union(*(kinds_of(plan_of(seed, config)) for seed in range(40))) == {"cut-power"}


# ---- the configuration


def test_a_configuration_is_read():
    config = read_config(b'actors_max = 1\n[weights]\n"files.fail" = 3.0\n', path=HERE)
    assert config == CampaignConfig(actors_max=1, weights={"files.fail": 3.0})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"actors_max = ", "not TOML"),
        (b"\xff", "not TOML"),
        (b"actors = 1", "actors"),
        (b"actors_max = 0", "actors_max"),
        (b'actors_max = "many"', "many"),
        (b"quiet_share = 2", "quiet_share"),
        (b"[weights]\nrain = 1", "rain"),
        (b'[weights]\n"files.fail" = -1', "files.fail"),
    ],
)
def test_a_wrong_configuration_is_refused_with_what_is_wrong(text, says):
    with pytest.raises(ProblemError) as refused:
        read_config(text, path=HERE)
    assert refused.value.problem.reason is Reason.CONFIG_REFUSED
    assert says in refused.value.problem.message


# ---- repro files


@pytest.mark.parametrize("plan", PLANS[:50], ids=range(50))
def test_a_plan_comes_back_out_of_its_repro(plan):
    repro = Repro(plan=plan, found=(), planted="no-thaw")
    data = repro_as_lines(repro)
    assert is_repro(data)
    assert read_repro(data, path=HERE) == repro


GOOD = repro_as_lines(Repro(plan=Plan(seed=3, actors=PLANS[0].actors), found=()))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"{}", 1),
        (b'{"kind": "GreenroomTrace", "v": 1}', 1),
        (GOOD.replace(b'"v":1', b'"v":2'), 1),
        (GOOD.replace(b'"planted":null', b'"planted":"rain"'), 1),
        (GOOD.replace(b'"seed"', b'"sed"'), 2),
        (GOOD + b"no JSON\n", 3),
        (GOOD + b'{"deed":{"deed":"Rain","at_s":1}}\n', 3),
        (GOOD + b'{"rain":{}}\n', 3),
        (GOOD + b"[1]\n", 3),
    ],
)
def test_a_wrong_repro_is_refused_with_the_number_of_its_line(data, line):
    plan_lines = len(PLANS[0].actors) - 1
    with pytest.raises(ProblemError) as refused:
        read_repro(data, path=HERE)
    assert refused.value.problem.reason is Reason.INVALID_TRACE
    assert f"line {line + plan_lines * (line > 1)}" in refused.value.problem.message


def test_what_is_no_repro_is_none():
    assert not is_repro(b"")
    assert not is_repro(b"no JSON")
    assert not is_repro(b'{"kind": "GreenroomTrace"}')
    assert attrs.fields_dict(Plan).keys() >= {"seed", "actors", "deeds", "faults"}
