"""Carries what happens in a fleet of simulated workers to the fleet that decides, and its orders to the workers.

All workers are in one event loop of one process. Where somebody goes depends on what has just become of everybody else,
on every worker: workers that were simulated apart would have to wait for each other at every decision, and workers
whose decisions were made beforehand would not be told what their supervisors then did.
"""

from __future__ import annotations

import math
import random  # noqa: TID251 - seeded: what is different from replay to replay comes from the seed
from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from sim.fleet.facts import (
    AddWorker,
    DrainWorker,
    Elapsed,
    ForgetActor,
    Inject,
    RemoveWorker,
    ResumeActor,
    StartActor,
    WorkerGone,
)
from sim.guard import beyond, guarded
from sim.hearing import Hearing
from sim.replay.accounting import Account
from sim.replay.faithful.carrying import Way
from sim.replay.faithful.judging import judge, judge_supervisors
from sim.replay.faithful.mishaps import NAMES, happens
from sim.replay.faithful.papers import uid_of
from sim.replay.faithful.telling import Telling
from sim.replay.faithful.worker import STORE, Worker
from sim.world.stores import SimObjects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim import hearing
    from sim.fleet.config import FleetConfig
    from sim.fleet.dispatch import Fleet
    from sim.fleet.facts import Fact, Order
    from sim.replay.results import MoveSink
    from sim.traces.records import FaultRecord, Record
    from statemachine.reasons import Reason

_MIB: Final = 1 << 20


class Conductor:
    """Carries facts to the fleet, and its orders to the workers.

    Attributes:
        fleet: who decides.
        account: of the replay.
        config, seed, objects, way, stored: what all workers share.
        workers: those that are there, by name.
    """

    def __init__(self, fleet: Fleet, *, config: FleetConfig, seed: int, sink: MoveSink | None) -> None:
        self.fleet = fleet
        self.config = config
        self.seed = seed
        self.objects = SimObjects()
        self.way = Way(config)
        self.stored: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.account = Account(config.cost)
        self._telling = Telling(self.account, sink)
        self._facts: deque[Fact] = deque()
        self._news = trio.Event()
        self._is_quiet = False
        self._generations: dict[str, int] = {}
        self._sizes: dict[str, float] = {}
        self._gpus: dict[str, int] = {}
        sizes = random.Random(f"{seed}: sizes")  # noqa: S311 - a simulation wants to be repeated
        self._mib = config.snapshots.mib.drawn_by(sizes)
        self._per_gpu_mib = config.snapshots.per_gpu_mib.drawn_by(sizes)
        self._tasks: trio.Nursery | None = None

    async def conduct(self, records: Iterator[Record]) -> float:
        """Replay to the end; returns when that was.

        Raises:
            Exception: what the records or the sink raise.
        """
        failure: Exception | None = None
        end_s = 0.0
        with guarded(), Hearing(keeps=False).open():
            async with trio.open_nursery() as tasks:
                self._tasks = tasks
                tasks.start_soon(self.way.keep)
                try:
                    end_s = await self._play(records)
                    judge(self.workers.values(), self.fleet, self.account)
                except Exception as error:  # noqa: BLE001 - raised again below, where no nursery puts it into a group
                    failure = error
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return end_s

    # ---- what workers ask and tell

    def tell(self, fact: Fact) -> None:
        """Something has happened; the fleet hears of it in its turn."""
        self._facts.append(fact)
        self._news.set()

    def tell_move(self, worker: str, moved: hearing.Moved, actor: str) -> None:
        """An actor's supervisor has told of a transition."""
        self._telling.moved(worker, actor, moved)

    def tell_step(self) -> None:
        """A supervisor's machine was fed an event that changed nothing."""
        self.account.machine_events += 1

    def tell_refusal(self, reason: Reason) -> None:
        """A supervisor has refused to start an actor."""
        self.account.failed(str(reason))

    def size_of(self, uid: str) -> float:
        """How many bytes a snapshot of an actor has: each actor's have one size."""
        return self._sizes[uid]

    def generation_of(self, actor: str) -> int:
        """A generation that nobody has seen of an actor, higher than all before."""
        self._generations[actor] = self._generations.get(actor, 0) + 1
        return self._generations[actor]

    def when_quiet(self) -> None:
        """Nothing will happen any more but for the trace."""
        self._is_quiet = True
        self._news.set()

    # ---- the play

    async def _play(self, records: Iterator[Record]) -> float:
        """Take what comes, in the order of its time; returns when the last thing happened."""
        record = _next(records)
        last_s = 0.0
        while True:
            now_s = trio.current_time()
            if self._telling.failure is not None:
                raise self._telling.failure
            if self._facts:
                self._take(self._facts.popleft())
            elif record is not None and record.at_s <= now_s:
                self.account.rows += 1
                self._take(record)
                record = _next(records)
            elif self.fleet.due_s <= now_s:
                if not self._take(Elapsed(now_s)):
                    continue  # what was waited for has come to nothing
            elif self._is_quiet and record is None and self.fleet.due_s == math.inf:
                return last_s
            else:
                await self._wait(min(math.inf if record is None else record.at_s, self.fleet.due_s))
                continue
            last_s = now_s

    async def _wait(self, until_s: float) -> None:
        self._is_quiet = False
        self._news = trio.Event()
        with trio.CancelScope(deadline=until_s):
            await self._news.wait()

    def _take(self, fact: Fact) -> bool:
        """Tell the fleet and do what it orders; says whether that was anything."""
        self.account.events += 1
        if isinstance(fact, WorkerGone):
            self._forget(fact)
        orders = self.fleet.take(fact)
        for order in orders:
            self._perform(order)
        self.account.counted(trio.current_time(), self.fleet.counts)
        return bool(orders)

    def _perform(self, order: Order) -> None:
        match order:
            case AddWorker():
                self._add(order)
            case DrainWorker():
                self.workers[order.worker].drain()
            case RemoveWorker():
                self.workers[order.worker].remove()
            case ForgetActor():
                self._forget_actor(order.actor)
            case Inject():
                self._inject(order.record)
            case _:
                if isinstance(order, StartActor):
                    self._introduce(order)
                if isinstance(order, StartActor | ResumeActor):
                    self._telling.ordered(trio.current_time(), order, self._gpus[order.actor])
                self.workers[order.worker].perform(order)

    def _inject(self, record: FaultRecord) -> None:
        if record.fault in NAMES:
            self.account.planned(record.fault, fired=happens(record, self))
        else:
            self.account.unknown(record.fault)

    def _introduce(self, order: StartActor) -> None:
        """An actor is on its way to a worker: how large its snapshots are is known from then on."""
        gpus = self._gpus[order.actor] = order.assignment.gpus
        uid = uid_of(order.actor)
        if uid not in self._sizes:
            self._sizes[uid] = _MIB * (self._mib() + sum(self._per_gpu_mib() for _ in range(gpus)))

    def _add(self, order: AddWorker) -> None:
        record = order.record
        worker = self.workers[record.worker] = Worker(record, self)
        self.account.worker_up(trio.current_time(), record.worker, record.gpus, record.model or "")
        self.tasks.start_soon(worker.live, name=record.worker)

    @property
    def tasks(self) -> trio.Nursery:
        """Where things go on by themselves until the end.

        Raises:
            RuntimeError: nothing is being conducted.
        """
        if self._tasks is None:
            raise RuntimeError("nothing is being conducted")
        return self._tasks

    def _forget_actor(self, actor: str) -> None:
        """What the store has of it goes, as whoever runs a fleet would have it; what is on a worker stays there."""
        self.stored.pop(actor, None)
        prefix = f"{STORE}/{uid_of(actor)}/"
        content = self.objects.content
        for uri in [uri for uri in content if uri.startswith(prefix)] if self.config.store.upload else ():
            del content[uri]

    def _forget(self, gone: WorkerGone) -> None:
        judge_supervisors(self.workers.pop(gone.worker), self.account)
        self._telling.worker_gone(gone.at_s, gone.worker)
        self.account.worker_down(gone.at_s, gone.worker)


def _next(records: Iterator[Record]) -> Record | None:
    with beyond():
        return next(records, None)
