"""Whatever a trace asks for and whatever goes wrong: nothing is granted twice, and one seed is one result."""

import json
import os
import subprocess
import sys

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.replay.results import Verdict
from sim.traces.records import FaultRecord, Resume, Suspend, Terminate, WorkerDrain, WorkerRemove
from statemachine.states import State
from tests.needs import ROOT
from tests.sim.replay.fast_runs import actor, replayed, without_cpu, worker

HOLDING = {
    State.INJECTING, State.CREATING, State.RESTORING, State.VERIFYING, State.RUNNING, State.SUSPENDING, State.THAWING,
}  # fmt: skip
"""States in which an actor that claims GPUs has them, whatever else is so."""
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
WORKERS = st.sampled_from(["w1", "w2", "w3"])


@attrs.define
class Auditor:
    """Counts from outside, by the transitions alone, how many GPUs are in use where."""

    gpus: dict[str, int]
    claims: dict[str, int]
    at: dict[tuple[str, str], State] = attrs.field(factory=dict)
    worst: int = 0

    def moved(self, at_s, worker, actor, before, event, after, reason):  # noqa: PLR0917 - a MoveSink's
        self.at[worker, actor] = after
        used = sum(self.claims[who] for (where, who), state in self.at.items() if where == worker and state in HOLDING)
        self.worst = max(self.worst, used - self.gpus[worker])


def deeds(draw):
    at_s, records = 1.0, [worker("w1", gpus=2), worker("w2", gpus=1), worker("w3", gpus=0)]
    known = set()
    for _ in range(draw(st.integers(1, 40))):
        at_s += draw(st.sampled_from([0.0, 0.05, 0.3, 2.0, 60.0, 900.0]))
        name, where = draw(NAMES), draw(WORKERS)
        kind = draw(st.integers(0, 11))
        if name not in known:
            known.add(name)
            gpus = "abcde".index(name) % 3
            records.append(actor(name, gpus=gpus, at_s=at_s, for_s=draw(st.sampled_from([None, None, 5.0, 500.0]))))
            continue
        match kind:
            case 0 | 1 | 2:
                records.append(Suspend(at_s=at_s, actor=name))
            case 3 | 4 | 5 | 6:
                records.append(Resume(at_s=at_s, actor=name, busy_s=draw(st.sampled_from([None, 0.0, 30.0]))))
            case 7:
                records.append(Terminate(at_s=at_s, actor=name))
            case 8:
                records.append(WorkerDrain(at_s=at_s, worker=where))
            case 9:
                records.append(WorkerRemove(at_s=at_s, worker=where))
            case _:
                fault = draw(st.sampled_from(["kill-sandbox", "lose-gpu", "xid", "kill-worker", "store-outage"]))
                about = {} if fault == "store-outage" else {"actor": name}
                if fault in {"lose-gpu", "xid"} and draw(st.booleans()):
                    about = {"args": {"gpu": draw(st.integers(0, 1))}}  # whoever holds it, or is on its way to it
                records.append(FaultRecord(at_s=at_s, fault=fault, worker=where, **about))
    return records


TRACES = st.composite(deeds)()
CONFIGS = st.sampled_from(
    [
        {},
        {"suspension.idle_timeout_s": 20.0},
        {"suspension.oversubscribe": False, "placement.scheduler": "spread"},
        {"placement.locality_wait_s": 0.0, "store.bytes_per_s": 1e7, "drain.timeout_s": 5.0},
        {"loss.cold_start": True, "actors.restart": "OnFailure", "drain.on_drain": "stop"},
        {"store.upload": False},
    ]
)


@given(TRACES, CONFIGS, st.sampled_from(["default", "troubled"]), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_every_promise_is_kept_and_no_gpu_is_in_use_twice(records, overrides, config, seed):
    gpus = {"w1": 2, "w2": 1, "w3": 0}
    auditor = Auditor(gpus=gpus, claims={name: "abcde".index(name) % 3 for name in "abcde"})
    result = replayed(*records, overrides=overrides, config=config, seed=seed, sink=auditor)
    assert result.violations == ()
    assert result.verdict is Verdict.HELD
    assert auditor.worst <= 0


@given(TRACES, st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_one_seed_is_one_result(records, seed):
    once, again = (without_cpu(replayed(*records, config="troubled", seed=seed)) for _ in range(2))
    assert once == again


def test_one_seed_is_one_text_however_the_process_hashes():
    trace = ROOT / "sim/traces/shipped/thundering-herd.jsonl"
    argv = [
        sys.executable,
        "-m",
        "greenroom",
        "sim",
        "replay",
        str(trace),
        "--config",
        "troubled",
        "--seed",
        "3",
        "--json",
    ]
    told = set()
    for hashing in ("0", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": hashing}
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, check=True)
        document = json.loads(done.stdout)
        document["cpu_s"] = 0
        told.add(json.dumps(document))
    assert len(told) == 1


LOGNORMAL = {"latency.suspend": {"kind": "lognormal", "median": 0.1, "p95": 0.3, "source": "a test"}}


def test_another_seed_is_another_result():
    records = (worker(), actor(), Suspend(at_s=5.0, actor="a"))
    first, second = (replayed(*records, seed=seed, overrides=LOGNORMAL) for seed in (1, 2))
    assert first.steps["suspend"] != second.steps["suspend"]


def test_a_fleet_with_another_latency_draws_the_same_for_everything_else():
    records = (worker(), actor(), Suspend(at_s=5.0, actor="a"))
    constant = {"kind": "constant", "value": 0.7, "source": "a test"}
    plain = replayed(*records, overrides=LOGNORMAL)
    slow = replayed(*records, overrides={**LOGNORMAL, "latency.create": constant})
    assert plain.steps["suspend"] == slow.steps["suspend"]
    assert plain.steps["create"] != slow.steps["create"]
