"""Results for pages: small ones of real replays, and what is made of them."""

from functools import cache
from typing import Any, Final

import attrs

from sim.invariants.violation import Tally
from sim.replay.results import Occupancy, ReplayResult, Slow, Timeline, Verdict
from sim.traces.records import FaultRecord, Resume, Suspend
from tests.sim.replay.fast_runs import actor, replayed, worker

HOSTILE: Final = "</script><img src=x onerror=\"window.hit='yes'\">&amp;'`${1}"
"""A name as nobody should have it; the readers of traces refuse it, a result from elsewhere may hold it."""


@cache
def small(seed: int = 0) -> ReplayResult:
    """Two workers, three actors, some waiting, a fault."""
    records = [
        worker("w1", gpus=2),
        worker("w2", gpus=1),
        *(actor(f"a{number}", at_s=float(number)) for number in range(1, 5)),
        FaultRecord(at_s=7.0, fault="kill-sandbox", actor="a2"),
        Suspend(at_s=8.0, actor="a1"),
        Resume(at_s=30.0, actor="a1"),
        Suspend(at_s=60.0, actor="a3"),
    ]
    return replayed(*records, seed=seed)


def nothing() -> ReplayResult:
    """What an empty trace comes to."""
    return replayed()


def hostile() -> ReplayResult:
    """One in which every text is hostile."""
    it = small()
    return attrs.evolve(
        it,
        source=HOSTILE,
        failures={HOSTILE: 3},
        faults={HOSTILE: next(iter(it.faults.values()))},
        invariants={HOSTILE: Tally(checked=2, violated=1)},
        verdict=Verdict.VIOLATED,
        violations=(HOSTILE,),
        steps={HOSTILE: it.steps["create"]},
        slowest=(Slow(actor=HOSTILE, worker=HOSTILE, at_s=1.0, activation_s=2.0, steps={HOSTILE: 2.0}),),
        occupancy=attrs.evolve(it.occupancy, workers=[HOSTILE for _ in it.occupancy.workers]),
    )


def large(workers: int = 200, buckets: int = 1000) -> ReplayResult:
    """As large as one can be."""
    series = [float(index * 7 % 113) for index in range(buckets)]
    told: dict[str, Any] = dict.fromkeys(("running", "waiting", "suspended", "held_gpus", "gpus"), series)
    return attrs.evolve(
        small(),
        virtual_s=3600.0 * buckets,
        workers=1213,
        timeline=Timeline(bucket_s=3600.0, at_s=[index * 3600.0 for index in range(buckets)], **told),
        occupancy=Occupancy(
            workers=[f"openb-node-{index:04d}" for index in range(workers)],
            held=[[(row * column % 101) / 100 for column in range(buckets)] for row in range(workers)],
            up=[[1.0] * buckets for _ in range(workers)],
        ),
    )
