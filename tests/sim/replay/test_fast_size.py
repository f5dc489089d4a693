"""How large a replay may be: a long trace takes no more memory than a short one; the real trace of OpenB is quick."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from sim.fleet.config import read_config
from sim.replay.fast import engine, kernel
from sim.replay.fast.engine import replay
from sim.replay.fast.kernel import Kernel
from sim.replay.quantiles import TOGETHER
from sim.replay.results import Verdict
from sim.traces.importing.openb import OpenB, import_openb
from sim.traces.importing.rows import BadRows
from sim.traces.records import Header, Resume, Suspend, Terminate, WorkerAdd
from tests.sim.replay.fast_runs import actor, replayed, without_cpu, worker

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces"
PODS, NODES = REAL / "openb_pod_list_default.csv", REAL / "openb_node_list_gpu_node.csv"
needs_openb = pytest.mark.skipif(not PODS.is_file(), reason="the traces of OpenB are not beside this checkout")


def rounds(count, actors=20):
    """Actors that are suspended and resumed until they end, and others of other names come."""
    yield worker(gpus=8)
    yield worker("w2", gpus=8)
    at_s = 1.0
    for turn in range(count):
        for index in range(actors):
            name = f"{turn // 10}-{index}"
            if turn % 10 == 9:
                yield Terminate(at_s=at_s, actor=name)
            elif turn % 10 == 0:
                yield actor(name, at_s=at_s, for_s=600.0)
            elif turn % 2:
                yield Suspend(at_s=at_s, actor=name)
            else:
                yield Resume(at_s=at_s, actor=name)
            at_s += 1.0
        at_s += 100.0


def peak_bytes(count):
    gc.collect()
    tracemalloc.start()
    try:
        result = replay(Header(source="rounds"), rounds(count, actors=8), config=read_config(), seed=1)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def test_a_trace_that_is_four_times_as_long_takes_no_more_memory():
    peak_bytes(10)  # what is made once, and stays
    short, result = peak_bytes(40)
    long, longer = peak_bytes(160)
    assert longer.transitions > 3 * result.transitions
    # Timelines and histograms have so many buckets at most, and are not full after the short one.
    assert long < 1.25 * short
    assert longer.verdict is Verdict.HELD


def suspended_again_and_again(count):
    """Work that is far from its end, each time."""
    yield worker()
    yield actor(for_s=1e9)
    for at_s in range(10, 20 * count, 20):
        yield Suspend(at_s=at_s, actor="a")
        yield Resume(at_s=at_s + 10, actor="a")


def test_what_nobody_waits_for_any_more_is_not_kept_until_its_time_comes(monkeypatch):
    longest = 0

    class Watched(Kernel):
        def feed(self, life, event):
            nonlocal longest
            longest = max(longest, len(self.heap))
            super().feed(life, event)

    monkeypatch.setattr(engine, "Kernel", Watched)
    kept = without_cpu(replayed(*suspended_again_and_again(300), config="troubled"))
    assert longest >= 300
    longest = 0
    monkeypatch.setattr(kernel, "TIDIED_FROM", 50)
    assert without_cpu(replayed(*suspended_again_and_again(300), config="troubled")) == kept
    assert longest < 50 + TOGETHER


SCHEDULERS = [pytest.param(name, marks=pytest.mark.long) for name in ("first-fit", "spread")]


@needs_openb
@pytest.mark.parametrize("scheduler", ["best-fit", *SCHEDULERS])
def test_all_of_openb_runs_to_its_end(scheduler):
    header, records = import_openb([PODS], OpenB(nodes=NODES), BadRows())
    config = read_config(None, {"placement.scheduler": scheduler})
    result = replay(header, records, config=config, seed=1)
    assert result.workers == 1213
    assert result.gpus == 6212
    assert result.ways == {"cold": 8152}
    assert result.verdict is Verdict.HELD
    assert result.failures == {}
    assert sum(result.states.values()) == 0
    # It is a small part of a cluster's pods: nobody has to wait for more than the start of the workers.
    assert result.activation_s["p95"] < 0.5


@needs_openb
@pytest.mark.long
@pytest.mark.parametrize("scheduler", ["first-fit", "best-fit", "spread"])
def test_openb_on_few_workers_makes_actors_wait_and_ends_all_the_same(scheduler):
    header, records = import_openb([PODS], OpenB(nodes=NODES), BadRows())
    few = (each for each in records if not isinstance(each, WorkerAdd) or each.worker < "openb-node-0012")
    result = replay(header, few, config=read_config(None, {"placement.scheduler": scheduler}), seed=1)
    assert result.workers == 12
    assert result.steps["wait"]["max"] > 3600
    assert result.verdict is Verdict.HELD
