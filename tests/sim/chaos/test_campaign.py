"""Campaigns: nothing is found in the worker as it is, each planted defect is, and the same seeds are the same bytes."""

import subprocess
import sys

import attrs
import orjson
import pytest

from sim.chaos.campaign import run_campaign, run_seeds
from sim.chaos.config import CampaignConfig
from sim.chaos.defects import DEFECTS, planted
from sim.chaos.drawing import plan_of
from sim.chaos.outcome import Found, Outcome, Phase
from sim.chaos.plan import (
    Assign,
    Command,
    KillWorker,
    LoseGpu,
    Plan,
    PlannedActor,
    PlannedContainer,
    UpgradeDriver,
)
from sim.chaos.running import run_plan
from sim.chaos.summary import EXIT_CODES, added, as_json, coverage_of, summary_of
from sim.chaos.watching import CHECKED
from sim.shrinking.reducing import reduce_plan
from supervisor.gpu_telling import GpuTelling
from supervisor.spec_keeper import SpecKeeper
from tests.needs import ROOT

STANDARD = CampaignConfig()
USUAL = 24
"""Seeds of the usual run of the tests: some five seconds."""
IN_CI = 200
AT_LEAST = 2000
"""Within so many seeds each planted defect is found, and each kind of fault has fired."""
QUICK = {
    "cpu-only": 40, "killed-before-proof": 40, "promoted-not-written": 40, "sandbox-left": 40, "never-taken-over": 40,
    "stored-not-sent": 40, "found-incompatible": 40,
}  # fmt: skip
RAN = Plan(seed=0, actors=(PlannedActor(uid="a1"),), deeds=(Assign(at_s=0.1, uid="a1", generation=1, state="Running"),))


def told(summary):
    return "\n".join(f"seed {outcome.seed}: {found}" for outcome in summary.failing for found in outcome.found)


def test_some_seeds_violate_nothing():
    summary = run_seeds(range(USUAL), STANDARD)
    assert summary.runs == USUAL
    assert not summary.failed, told(summary)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, IN_CI, 50))
def test_200_seeds_violate_nothing(first):
    summary = run_seeds(range(first, first + 50), STANDARD)
    assert not summary.failed, told(summary)


@pytest.mark.campaign
def test_in_2000_seeds_every_kind_of_fault_fires_and_nothing_is_violated():
    summary = run_campaign(range(AT_LEAST), STANDARD, processes=2)
    assert not summary.failed, told(summary)
    assert summary.unfired == ()


def first_found(defect, seeds):
    """The first seed in which a planted defect is found; None when it is not."""
    with planted(defect):
        return next((outcome for seed in range(seeds) if (outcome := run_plan(plan_of(seed))).found), None)


@pytest.mark.parametrize("defect", QUICK)
def test_a_planted_defect_is_found_within_few_seeds(defect):
    assert first_found(defect, QUICK[defect]) is not None


@pytest.mark.campaign
@pytest.mark.parametrize("defect", DEFECTS)
def test_each_planted_defect_is_found_within_2000_seeds(defect):
    assert first_found(defect, AT_LEAST) is not None


def test_there_are_ten_defects_and_each_says_what_it_is():
    assert len(DEFECTS) >= 10
    assert all(each.what.endswith(".") for each in DEFECTS.values())


def test_a_defect_is_gone_when_it_is_not_planted_any_more():
    places = [(where, name) for each in DEFECTS.values() for where, name, _ in each.exchanges]
    before = [getattr(where, name) for where, name in places]
    for defect in DEFECTS:
        with planted(defect):
            assert [getattr(where, name) for where, name in places] != before
    assert [getattr(where, name) for where, name in places] == before


# ---- one run


def test_a_run_is_the_same_when_it_is_run_again():
    assert [run_plan(plan_of(seed)) for seed in range(3)] == [run_plan(plan_of(seed)) for seed in range(3)]


@pytest.mark.parametrize("hash_seed", ["1", "4711"])
def test_the_sum_of_seeds_is_the_same_bytes_in_every_process(hash_seed):
    wanted = '{"first":0,"count":3,"config":{},"defect":null}'
    argv = [sys.executable, "-m", "sim.chaos.part", wanted]
    env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, check=True)
    here = run_seeds(range(3), STANDARD)
    assert orjson.loads(done.stdout)["digest"] == here.digest


def test_a_run_looks_with_every_checker_and_tells_of_faults_and_cells():
    plan = attrs.evolve(RAN, deeds=(*RAN.deeds, KillWorker(at_s=3.0, down_s=0.5)), lasts_s=8.0)
    outcome = run_plan(plan)
    assert outcome.found == ()
    assert set(CHECKED) <= set(outcome.checked)
    assert (outcome.planned, outcome.fired) == ({"kill-worker": 1}, {"kill-worker": 1})
    assert "Running Recovered kill-worker" in outcome.cells
    assert "Assigned AssignmentRecorded none" in outcome.cells


ON_A_GPU = Plan(
    seed=0,
    gpus=1,
    lasts_s=20.0,
    actors=(PlannedActor(uid="a1", containers=(PlannedContainer(gpus=1),)),),
    deeds=(Assign(at_s=0.1, uid="a1", generation=1, state="Running"),),
)


def names_found(plan):
    return {found.name for found in run_plan(plan).found}


def test_who_runs_on_with_a_gpu_that_was_lost_is_found(monkeypatch):
    async def tell_nobody(*_args):
        return

    plan = attrs.evolve(ON_A_GPU, deeds=(*ON_A_GPU.deeds, LoseGpu(at_s=3.0, gpu=0, for_s=30.0)))
    assert names_found(plan) == set()
    monkeypatch.setattr(GpuTelling, "_tell_losses", tell_nobody)
    assert "LossIsTold" in names_found(plan)


def test_who_is_given_what_an_older_driver_had_is_found(monkeypatch):
    async def keep_the_first(keeper, question):
        return keeper._made[1] if keeper._made else await look(keeper, question)

    end = Command(at_s=2.5, uid="a1", op="stop")
    upgrade = UpgradeDriver(at_s=3.0, version="550.90.07", reload_s=0.5)
    again = Assign(at_s=17.0, uid="a1", generation=2, state="Running")
    plan = attrs.evolve(ON_A_GPU, deeds=(*ON_A_GPU.deeds, end, upgrade, again))
    assert names_found(plan) == set()
    look = SpecKeeper._look
    monkeypatch.setattr(SpecKeeper, "_look", keep_the_first)
    assert {"MountsAreThere", "SpecIsOfNow"} <= names_found(plan)


def test_what_ends_a_run_is_a_crash(monkeypatch):
    def broken(_life):
        raise ZeroDivisionError

    monkeypatch.setattr("sim.chaos.running.Settling.run", broken)
    (found,) = run_plan(RAN).found
    assert (found.phase, found.name) == (Phase.CRASH, "ZeroDivisionError")


# ---- sums


def test_a_sum_is_the_same_however_its_parts_were_divided():
    parts = [summary_of(run_plan(plan_of(seed))) for seed in range(4)]
    assert added([added(parts[:1]), added(parts[1:])]) == added(reversed(parts))


def test_the_gravest_of_what_was_found_is_the_verdict():
    def failing(seed, *phases):
        found = tuple(Found(phase=phase, name="X", subject="a1", message="it is so", at_s=1.0) for phase in phases)
        return summary_of(Outcome(seed=seed, found=found, digest="00"))

    both = added([failing(1, Phase.CRASH), failing(2, Phase.LIVENESS)])
    assert (both.phase, both.failed) == (Phase.LIVENESS, 2)
    assert added([both, failing(0, Phase.SAFETY)]).phase is Phase.SAFETY
    assert summary_of(Outcome(seed=1)).phase is None
    assert EXIT_CODES == {Phase.SAFETY: 3, Phase.LIVENESS: 4, Phase.CRASH: 5}
    assert [each["seed"] for each in as_json(both)["violations"]] == [1, 2]


def test_coverage_counts_cells_and_pairs():
    cells = {"Running Activate none": 3, "Running Activate xid": 1, "Failed Activate xid": 2}
    coverage = coverage_of(summary_of(Outcome(seed=1, cells=cells)))
    assert (coverage["cells"], coverage["pairs"]) == (3, 2)
    assert coverage["byKind"] == {"none": 1, "xid": 2}


# ---- shrinking


def test_a_failing_plan_shrinks_to_a_few_lines_in_which_the_same_is_found():
    with planted("cpu-only"):
        outcome = first_found("cpu-only", 40)
        plan = plan_of(outcome.seed)
        reduced = reduce_plan(plan, outcome, run_plan)
        assert outcome.found[0].what in {each.what for each in run_plan(reduced.plan).found}
    assert len(reduced.plan.actors) == 1
    assert len(reduced.plan.deeds) + len(reduced.plan.faults) <= 3
    assert run_plan(reduced.plan).found == ()


def test_shrinking_ends_after_as_many_runs_as_it_may_have():
    runs = []

    def count(plan):
        runs.append(plan)
        return Outcome(seed=plan.seed)

    outcome = Outcome(seed=1, found=(Found(phase=Phase.SAFETY, name="X", subject="a1", message="", at_s=0.0),))
    reduced = reduce_plan(plan_of(1), outcome, count, runs_max=5)
    assert (len(runs), reduced.runs, reduced.plan) == (5, 5, plan_of(1))
