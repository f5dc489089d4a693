"""Whether what must hold holds at the end of a replay, when nothing is under way any more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sim.engine import record_of
from sim.invariants.registry import INVARIANTS
from statemachine.problem import ProblemError
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.fleet.dispatch import Fleet
    from sim.invariants.violation import Finding
    from sim.replay.accounting import Account
    from sim.replay.faithful.worker import Worker

NEED_HISTORY: Final = frozenset(
    {"WhatWasToldIsKept", "DeadlinesKept", "FreezesArePaired", "GpusAreExact", "LastGoodIsKept", "NobodyIsLost"}
)
"""These look at everything that has happened, of which a replay keeps nothing."""
OF_FILES: Final = frozenset(
    {"GpusHaveOneHolder", "JournalsReplay", "OneSandbox", "StateFilesParse", "StatusTellsTheTruth"}
)
"""These read what was written; a full disk keeps it from being written, which is told."""


def judge(workers: Iterable[Worker], fleet: Fleet, account: Account) -> None:
    """Look at every worker that rests through each checker that needs no history, and at the fleet."""
    if fleet.lost:
        account.failed(str(Reason.WORKER_UNREACHABLE), fleet.lost)
    stuck = fleet.stuck()
    account.check("NobodyWaitsForNothing", holds=not stuck, otherwise=lambda: "; ".join(stuck[:3]))
    for worker in workers:
        judge_supervisors(worker, account)
        account.check("EveryActorRests", holds=worker.is_at_rest or not worker.is_up, otherwise=partial(_named, worker))
        if worker.is_at_rest:
            _judge(worker, account)


def judge_supervisors(worker: Worker, account: Account) -> None:
    """Look whether every supervisor of a worker ended as it was asked to, and called nothing a fault of ours."""
    ends = (each.error for each in worker.world.incarnations)
    faults = [*worker.faults, *(repr(each) for each in ends if each is not None and not isinstance(each, ProblemError))]
    account.check("NoFaultOfOurs", holds=not faults, otherwise=lambda: f"{worker.name}: {faults[0]}")


def _judge(worker: Worker, account: Account) -> None:
    record = record_of(worker.world)
    for name, checker in INVARIANTS.items():
        if name not in NEED_HISTORY:
            found = (each for each in checker(worker.world, record) if not _is_excused(worker, name, each[0]))
            finding = next(found, None)
            account.check(name, holds=finding is None, otherwise=partial(_told, worker, finding))


def _is_excused(worker: Worker, name: str, subject: str) -> bool:
    return name in OF_FILES and any(uid in subject for uid in worker.unwritten)


def _named(worker: Worker) -> str:
    return f"an actor of {worker.name} does not come to rest"


def _told(worker: Worker, finding: Finding | None) -> str:
    return ": ".join((worker.name, *(finding or ())))
