"""The fast engine from outside: a trace and a config in, a result out."""

from __future__ import annotations

import gc
import time  # noqa: TID251 - how long it took is told; nothing is decided by it
from typing import TYPE_CHECKING, Final

from sim.fleet.differing import differing
from sim.fleet.dispatch import Fleet
from sim.replay.accounting import Account
from sim.replay.fast.chances import Chances
from sim.replay.fast.kernel import Kernel
from sim.replay.fast.ordering import CARRY_OUT, END
from sim.replay.fast.ordering import REUSED as ASKED
from sim.replay.fast.paths import KEPT_MAX, Paths
from sim.replay.fast.performing import ARRIVE, PERFORM, carried
from sim.replay.fast.performing import REUSED as ANSWERED
from statemachine.actor import Resource
from statemachine.reasons import Reason
from statemachine.states import PASSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.fleet.config import FleetConfig
    from sim.replay.fast.lives import Life, Node
    from sim.replay.results import MoveSink, ReplayResult
    from sim.traces.records import Header, Record

NAME: Final = "fast"
GC_THRESHOLDS: Final = (100_000, 50, 100)
"""Many small objects that stay: looking through all of them as often as usual costs a fifth of the run."""


def replay(
    header: Header,
    records: Iterator[Record],
    *,
    config: FleetConfig,
    seed: int = 0,
    sink: MoveSink | None = None,
    kept_max: int = KEPT_MAX,
) -> ReplayResult:
    """Replay a trace until nothing happens any more.

    Args:
        header: of the trace.
        records: in order; taken one at a time, and none is kept.
        config: what the fleet is like.
        seed: of everything that is left to chance.
        sink: hears of every transition.
        kept_max: how many answers of the machine are kept; with 0 it is asked each time, and the result is the same.

    Raises:
        ProblemError: the trace cannot be read, or the config names no scheduler.
    """
    fleet, account = Fleet(config), Account(config.cost)
    paths = Paths(PERFORM, ARRIVE | END, kept_max)
    for event in (*ANSWERED, *ASKED):
        paths.reused(event)
    kernel = Kernel(config, fleet, account, Chances(config, seed), paths, CARRY_OUT, carried, sink)
    thresholds, begin_s = gc.get_threshold(), time.process_time()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        kernel.run(records)
    finally:
        gc.set_threshold(*thresholds)
    _look_at_the_end(kernel, account, fleet)
    return account.result(
        seed=seed,
        engine=NAME,
        source=header.source,
        skipped=fleet.skipped,
        end_s=kernel.last_s,
        cpu_s=time.process_time() - begin_s,
        counts=fleet.counts,
        config=differing(config),
    )


def _look_at_the_end(kernel: Kernel, account: Account, fleet: Fleet) -> None:
    """What must be so when nothing happens any more."""
    if fleet.lost:
        account.failed(Reason.WORKER_UNREACHABLE, fleet.lost)
    for node in kernel.nodes.values():
        for life in node.lives.values():
            _look_at_life(life, account)
        _look_at_worker(node, account)
    stuck = fleet.stuck()
    account.check("NobodyWaitsForNothing", holds=not stuck, otherwise=lambda: "; ".join(stuck[:3]))


def _look_at_life(life: Life, account: Account) -> None:
    account.check(
        "EveryActorRests",
        holds=life.memory.state not in PASSING,
        otherwise=lambda: f"{life.actor} is {life.memory.state} on {life.worker} for ever",
    )


def _look_at_worker(node: Node, account: Account) -> None:
    held = sum(len(life.granted) for life in node.lives.values() if Resource.GRANT in life.memory.held)
    name, gpus = node.record.worker, node.record.gpus
    free = len(node.free) + len(node.lost.keys() - node.holders.keys())
    account.check(
        "CapacityGivenBack",
        holds=len(node.holders) == held and free == gpus - held,
        otherwise=lambda: f"{name} has {free} free GPUs of {gpus}, and {held} are held",
    )
