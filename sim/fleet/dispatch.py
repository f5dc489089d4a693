"""The fleet: it is told facts and gives orders. It performs nothing, waits for nothing, and has no clock of its own.

    fleet = Fleet(config)
    for order in fleet.take(fact): …

Both engines carry its orders out: the one with real supervisors, the other with the machine in a heap. What it decides
is who goes to which worker, when somebody is suspended, and what becomes of those whose worker is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Final

from sim.fleet.config import FleetConfig
from sim.fleet.facts import (
    AddWorker,
    DrainWorker,
    Dropped,
    Elapsed,
    Fact,
    ForgetActor,
    GpusUsable,
    Inject,
    Moved,
    Order,
    RemoveWorker,
    StopActor,
    SuspendActor,
    Uploaded,
    WorkerGone,
    WorkerReady,
)
from sim.fleet.placing import Placing
from sim.fleet.roster import Listed, Wish, claim_of
from sim.fleet.schedulers import Place, Scheduler, named_scheduler
from sim.fleet.timers import Look
from sim.traces.records import (
    Assignment,
    FaultRecord,
    Resume,
    Suspend,
    Terminate,
    WorkerAdd,
    WorkerDrain,
    WorkerRemove,
)
from statemachine.reasons import Reason
from statemachine.states import State


class Fleet:
    """Every worker and every actor that has not ended.

    Attributes:
        counts: how many actors there are in which way. timers: what it waits for.
        skipped: records that meant nothing where they came.
        lost: actors whose worker went, with nothing left to bring them back from.
    """

    def __init__(self, config: FleetConfig, scheduler: Scheduler | None = None) -> None:
        """A fleet without workers; the scheduler is the config's where none is given.

        Raises:
            ProblemError: ConfigRefused: there is no scheduler of that name.
        """
        self._config = config
        self._in = Placing(config, scheduler or named_scheduler(config.placement.scheduler))
        self._draining: set[str] = set()
        self._back: dict[str, WorkerAdd] = {}
        self.timers = self._in.timers
        self.counts = self._in.counts
        self.skipped = 0
        self.lost = 0

    def take(self, fact: Fact) -> Sequence[Order]:
        """A fact; returns what is to be done because of it, in this order."""
        self._in.at_s = fact.at_s
        _TAKEN[type(fact)](self, fact)
        orders, self._in.orders = self._in.orders, []
        return orders

    @property
    def due_s(self) -> float:
        """When Elapsed is to be told, if nothing else is told before; inf is never."""
        return self.timers.next_s

    def stuck(self) -> list[str]:
        """Actors that wait although there is room for them, or could be: there must never be one at the end."""
        return self._in.stuck()

    # ---- workers

    def _worker_add(self, record: WorkerAdd) -> None:
        room = self._in.room
        if record.worker in self._draining:
            self._back[record.worker] = record  # it begins again once it is gone
            return
        if record.worker in room.places:
            self.skipped += 1
            return
        room.add(
            Place(
                name=record.worker,
                model=record.model or "",
                index=room.next_index(),
                gpus=record.gpus,
                free_gpus=record.gpus,
                free_cpu_milli=record.cpu_milli,
                free_memory_bytes=record.memory_bytes,
                free_actors=self._config.placement.actors_per_worker_max,
            )
        )
        self._in.on[record.worker] = {}
        self._order(AddWorker(record))

    def _worker_ready(self, fact: WorkerReady) -> None:
        place = self._in.room.places.get(fact.worker)
        if place is not None and fact.worker not in self._draining:
            self._in.room.open(fact.worker)
            self._in.offer(place)

    def _gpus_usable(self, fact: GpusUsable) -> None:
        self._in.resize(fact.worker, fact.gpus)

    def _worker_drain(self, record: WorkerDrain) -> None:
        self._back.pop(record.worker, None)
        if record.worker not in self._in.room.places or record.worker in self._draining:
            self.skipped += 1
            return
        self._in.room.close(record.worker)
        self._draining.add(record.worker)
        self._order(DrainWorker(record.worker))
        self._in.timers.set(record.at_s + self._config.drain.timeout_s, Look.DRAINED, record.worker)
        for one in list(self._in.on[record.worker].values()):
            if one.line is not None:
                self._in.leave_line(one)  # where it waited there is no room any more
                self._in.seek(one)
                self._in.counts.changed(one)
        self._see_drain(record.worker)

    def _worker_remove(self, record: WorkerRemove) -> None:
        self._back.pop(record.worker, None)
        if record.worker not in self._in.room.places:
            self.skipped += 1
            return
        self._remove(record.worker)

    def _remove(self, worker: str) -> None:
        self._in.room.close(worker)
        self._draining.add(worker)
        self._order(RemoveWorker(worker))

    def _see_drain(self, worker: str) -> None:
        """Take a drained worker away when nobody needs it any more."""
        if worker in self._draining and worker in self._in.room.places and not self._in.is_needed(worker):
            self._remove(worker)

    def _worker_gone(self, fact: WorkerGone) -> None:
        if fact.worker not in self._in.room.places:
            return
        self._in.room.remove(fact.worker)
        self._draining.discard(fact.worker)
        for one in self._in.on.pop(fact.worker).values():
            self._bereave(one)
        if (record := self._back.pop(fact.worker, None)) is not None:
            self._worker_add(record)

    def _bereave(self, one: Listed) -> None:
        """Its worker is gone, and with it its life there and the copy of its snapshot."""
        self._in.idleness.left(one)
        self._in.spare(one)
        was = one.state
        self._in.leave_line(one)
        self._in.uproot(one)
        one.has_room = one.holds = one.is_activating = False
        if was is State.RUNNING:
            one.asked_s = self._in.at_s
        comes_back = one.was_stored or not one.has_run or self._config.loss.cold_start
        if one.wish is Wish.END:
            self._forget(one)
        elif not comes_back:
            self.lost += 1
            self._forget(one)
        elif one.wish is Wish.RUN:
            one.is_stored = one.was_stored
            self._in.seek(one)
        self._in.counts.changed(one)

    # ---- what is wanted of actors

    def _assignment(self, record: Assignment) -> None:
        one = self._in.actors.get(record.actor)
        if one is None:
            one = Listed(record, claim_of(record), asked_s=record.at_s, busy_s=self._config.suspension.busy_s)
            self._in.actors[record.actor] = one
            self._in.counts.came(one)
            self._in.seek(one)
        elif record.generation <= one.assignment.generation:
            self.skipped += 1
        elif one.wish is Wish.END:
            one.successor = record
        elif claim_of(record) != claim_of(one.assignment):
            self.skipped += 1  # a claim is immutable, as in a WorkerAssignment
        else:
            one.assignment = record
            self._want(one, one.busy_s)

    def _resume(self, record: Resume) -> None:
        one = self._in.actors.get(record.actor)
        if one is None or one.wish is Wish.END:
            self.skipped += 1
            return
        self._want(one, self._config.suspension.busy_s if record.busy_s is None else record.busy_s)

    def _want(self, one: Listed, busy_s: float) -> None:
        at_s, was, one.wish = self._in.at_s, one.wish, Wish.RUN
        one.busy_until_s = max(one.busy_until_s, at_s + busy_s)
        if one.state is State.RUNNING:
            one.busy_s = busy_s
            self._in.idleness.asked(one)
            return
        one.busy_s, one.is_asked = max(busy_s, one.busy_s) if one.is_asked else busy_s, True
        if one.line is None and was is not Wish.RUN:
            one.asked_s, one.tries = at_s, 0
            if not one.is_active and not one.holds:
                self._in.seek(one)
                self._in.counts.changed(one)

    def _suspend(self, record: Suspend) -> None:
        one = self._in.actors.get(record.actor)
        if one is None or one.wish is Wish.END:
            self.skipped += 1
            return
        one.wish, one.retries_at_s = Wish.SUSPEND, math.inf
        if one.line is not None:
            self._in.leave_line(one)
            self._in.counts.changed(one)
        elif one.is_active and one.worker is not None:
            self._order(SuspendActor(one.name, one.worker))

    def _terminate(self, record: Terminate) -> None:
        one = self._in.actors.get(record.actor)
        if one is None or one.wish is Wish.END:
            self.skipped += 1
            return
        one.wish = Wish.END
        self._in.leave_line(one)
        self._in.counts.changed(one)
        if one.worker is None:
            self._forget(one)
        else:
            self._order(StopActor(one.name, one.worker))

    def _fault(self, record: FaultRecord) -> None:
        self._order(Inject(record))

    # ---- what became of it

    def _moved(self, fact: Moved) -> None:
        one = self._in.actors.get(fact.actor)
        if one is None or one.worker != fact.worker:
            return  # what is left of it on a worker that it has left
        before, one.state, one.holds = one.state, fact.state, fact.holds
        if fact.state is State.RUNNING:
            self._runs(one, before)
        else:
            if before is State.RUNNING:
                self._in.idleness.left(one)
                if one.wish is Wish.RUN:
                    one.asked_s = fact.at_s  # nobody wants it to stop: from now on it is waited for
            if fact.state is State.RELEASING:
                self._in.saved(one, fact.worker)
            elif not one.is_active:
                self._rests(one, fact.reason)
        self._in.counts.changed(one)
        if not one.is_active:
            self._see_drain(fact.worker)

    def _runs(self, one: Listed, before: State | None) -> None:
        one.is_activating, one.has_run, one.tries = False, True, 0
        one.busy_until_s, one.is_asked = self._in.at_s + one.busy_s, False
        if one.saved_for is not None:
            self._in.spare(one)
        if before is State.THAWING and one.wish is Wish.SUSPEND:
            one.wish = Wish.RUN  # its suspend was refused or failed, and it goes on
        self._in.idleness.asked(one)
        if not one.is_working:
            self._in.look_for_room(one.busy_until_s + self._config.suspension.idle_min_s)
            self._in.watch(one)

    def _rests(self, one: Listed, reason: Reason | None) -> None:
        self._in.spare(one)
        if one.state is State.TERMINATED:
            if not one.holds:
                self._in.free(one)
            self._forget(one)
            return
        if one.holds:
            return  # its cleanup has failed and is tried again; until then it keeps its room
        self._in.free(one)
        if one.wish is not Wish.RUN or one.line is not None:
            return
        failed = one.is_activating or one.state is State.FAILED
        one.is_activating = False
        if not failed:
            self._in.seek(one)  # it was asked for meanwhile, or its worker is drained
        elif one.tries < self._config.retry.times_max and reason is not Reason.CONTAINER_FAILED:
            one.tries += 1
            one.retries_at_s = self._in.at_s + self._config.retry.delay_s
            self._in.timers.set(one.retries_at_s, Look.RETRY, one.name)
        else:
            one.wish = Wish.SUSPEND  # given up, until it is asked for again

    def _uploaded(self, fact: Uploaded) -> None:
        one = self._in.actors.get(fact.actor)
        if one is None or one.local_on != fact.worker:
            return
        one.is_stored = one.was_stored = True
        self._seek_anew(one)
        self._see_drain(fact.worker)

    def _dropped(self, fact: Dropped) -> None:
        one = self._in.actors.get(fact.actor)
        if one is not None and one.local_on == fact.worker:
            one.local_on = None
            self._seek_anew(one)

    def _seek_anew(self, one: Listed) -> None:
        """There is another way for it by now: if it waits for one, it may go."""
        if one.wish is Wish.RUN and not one.is_active and not one.holds and one.retries_at_s == math.inf:
            self._in.seek(one)
            self._in.counts.changed(one)

    def _forget(self, one: Listed) -> None:
        """It has ended; a higher generation that came meanwhile begins."""
        self._in.leave_line(one)
        self._in.idleness.left(one)
        if one.worker is not None:
            self._in.on[one.worker].pop(one.name, None)
        del self._in.actors[one.name]
        self.timers.tidy(self._in.actors)
        self._order(ForgetActor(one.name))
        self._in.counts.went(one)
        if one.successor is not None:
            self._assignment(one.successor)

    # ---- time

    def _elapsed(self, fact: Elapsed) -> None:
        while due := self._in.timers.due(fact.at_s):
            look, subject = due
            if look is Look.MAKE_ROOM:
                self._in.make_room()
            elif look is Look.DRAINED:
                if subject in self._draining and subject in self._in.room.places:
                    self._remove(subject)
            elif (one := self._in.actors.get(subject)) is not None:
                self._look(look, one)
                self._in.counts.changed(one)

    def _look(self, look: Look, one: Listed) -> None:
        if look is Look.RETRY:
            if one.retries_at_s <= self._in.at_s:
                one.retries_at_s = math.inf
                self._seek_anew(one)
        elif look is Look.ELSEWHERE:
            waits_at_home = one.line is not None and one.line.worker == one.local_on and one.in_store
            if waits_at_home and one.home_until_s <= self._in.at_s:
                self._in.go(one, one.claim)
        else:
            one.has_timer = False
            self._in.watch(one)

    def _order(self, order: Order) -> None:
        self._in.orders.append(order)


_TAKEN: Final[MappingProxyType[type, Callable[[Fleet, Any], None]]] = MappingProxyType(
    {
        WorkerAdd: Fleet._worker_add,  # noqa: SLF001 - the table of the class's own methods
        WorkerRemove: Fleet._worker_remove,  # noqa: SLF001 - as above
        WorkerDrain: Fleet._worker_drain,  # noqa: SLF001 - as above
        Assignment: Fleet._assignment,  # noqa: SLF001 - as above
        Suspend: Fleet._suspend,  # noqa: SLF001 - as above
        Resume: Fleet._resume,  # noqa: SLF001 - as above
        Terminate: Fleet._terminate,  # noqa: SLF001 - as above
        FaultRecord: Fleet._fault,  # noqa: SLF001 - as above
        WorkerReady: Fleet._worker_ready,  # noqa: SLF001 - as above
        GpusUsable: Fleet._gpus_usable,  # noqa: SLF001 - as above
        WorkerGone: Fleet._worker_gone,  # noqa: SLF001 - as above
        Moved: Fleet._moved,  # noqa: SLF001 - as above
        Uploaded: Fleet._uploaded,  # noqa: SLF001 - as above
        Dropped: Fleet._dropped,  # noqa: SLF001 - as above
        Elapsed: Fleet._elapsed,  # noqa: SLF001 - as above
    }
)
"""By the class of a fact."""
