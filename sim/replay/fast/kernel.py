"""The kernel: a heap of times, and the state machine. What the supervisor does in a step's time, the heap waits out.

An entry is (when, turn, life, event). A life knows the turns that it waits for; an entry that nobody waits for any
more, because the step was cancelled or the life is gone, is passed over. An entry without a life is a call.

Every event goes through `feed`, which asks the machine (`paths`) and nobody else; what follows is in `performing`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from sim.fleet.bandwidth import Bandwidth
from sim.fleet.facts import Elapsed, Fact, Moved, Order
from sim.replay.accounting import WAIT, Account
from sim.replay.fast.chances import Chances
from sim.replay.fast.lives import NEVER, Life, Node, Saved
from sim.replay.fast.naming import Names
from sim.replay.fast.paths import Paths, Way
from sim.replay.quantiles import TOGETHER
from statemachine.events import Event
from statemachine.machine import Refused
from statemachine.states import STEP_OF, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.fleet.config import FleetConfig
    from sim.fleet.dispatch import Fleet
    from sim.replay.results import MoveSink
    from sim.traces.records import Record

_EPSILON_S: Final = 1e-6
TIDIED_FROM: Final = 5_000
"""Entries; of fewer it does not matter how many nobody waits for."""

Entry = tuple[float, int, "Life | None", Any]


class Kernel:
    """One replay under way.

    Attributes:
        at_s: now. last_s: when anything happened last.
        nodes: the workers that are up. stored: by actor, the newest snapshot that the store has.
        serving: by actor, the life that was activated last.
        heap: what is to come. turn: that of the last entry.
    """

    def __init__(  # noqa: PLR0917 - made in one place, `engine`
        self,
        config: FleetConfig,
        fleet: Fleet,
        account: Account,
        chances: Chances,
        paths: Paths,
        carry_out: Mapping[type, Callable[[Kernel, Any], None]],
        carried: Callable[[Kernel, Life, bool], None],
        sink: MoveSink | None,
    ) -> None:
        self.config = config
        self.fleet = fleet
        self.account = account
        self.chances = chances
        self.at_s = self.last_s = 0.0
        self.nodes: dict[str, Node] = {}
        self.stored: dict[str, Saved] = {}
        self.serving: dict[str, Life] = {}
        self.transfers: Bandwidth[tuple[Life, bool]] = Bandwidth(
            bytes_per_s=config.store.bytes_per_s, worker_bytes_per_s=config.store.worker_bytes_per_s
        )
        self.ways_down = 0
        self.paths = paths
        self.names = Names(paths)
        self.follow_up: deque[tuple[Life, Event]] = deque()
        self._carry_out = carry_out
        self._carried = carried
        self._sink = sink
        self.heap: list[Entry] = []
        self.turn = 0
        self._orders: deque[Order] = deque()
        self._next_transfer = NEVER
        self._next_carried: tuple[Life, bool] | None = None
        self._steps = {state: (str(name), account.step(str(name)).latest.append) for state, name in STEP_OF.items()}
        self.waits = account.step(WAIT)
        self._machine_events = self._transitions = self._in_time = 0
        self._most = TIDIED_FROM

    # ---- time

    def run(self, records: Iterator[Record]) -> None:
        """Take every record when it is due, and let happen what follows, until nothing happens any more."""
        heap, account, orders, carry_out = self.heap, self.account, self._orders, self._carry_out
        fleet, feed = self.fleet, self.feed
        timers, counts, changes = self.fleet.timers, self.fleet.counts, -1
        record = next(records, None)
        while True:
            record_s = record.at_s if record is not None else math.inf
            heap_s = heap[0][0] if heap else math.inf
            if record is not None and record_s <= heap_s and record_s <= timers.next_s:
                self.at_s = record_s
                account.rows += 1
                self.tell(record)
                record = next(records, None)
            elif heap_s <= timers.next_s:
                if not heap:
                    break
                self.at_s, turn, life, what = heappop(heap)
                if life is not None and turn == life.answer:
                    life.answer = NEVER
                    feed(life, what)
                elif not self._happen(turn, life, what):
                    continue  # nobody waits for it any more
            else:
                self.at_s = timers.next_s
                orders.extend(fleet.take(Elapsed(self.at_s)))
            account.events += 1
            if account.events % TOGETHER == 0:
                account.gather()
                if len(heap) > self._most:
                    self._tidy()
            if orders:
                self.last_s = self.at_s
            while orders:
                order = orders.popleft()
                carry_out[type(order)](self, order)
            if counts.changes != changes:
                changes = counts.changes
                account.counted(self.at_s, counts)
        account.machine_events, account.transitions = self._machine_events, self._transitions
        account.checked("DeadlinesKept", self._in_time)

    def after(self, seconds: float, life: Life | None, what: Any) -> int:
        """Let an event come to a life, or a call be made, so much later; returns its turn."""
        self.turn += 1
        heappush(self.heap, (self.at_s + seconds, self.turn, life, what))
        return self.turn

    def _tidy(self) -> None:
        """Take out what nobody waits for any more, once that may be half of all: its time may be far off."""
        self.heap[:] = [entry for entry in self.heap if self._is_waited_for(entry)]
        heapify(self.heap)
        self._most = max(TIDIED_FROM, 2 * len(self.heap))

    def _is_waited_for(self, entry: Entry) -> bool:
        _, turn, life, what = entry
        if life is None:
            return what is not None or turn == self._next_transfer
        return turn in {life.answer, life.deadline, life.work, life.cleanup}

    def _happen(self, turn: int, life: Life | None, what: Any) -> bool:
        """Let anything but the answer of a step happen; says whether anybody waited for it."""
        if life is None:
            if what is not None:
                what()
            elif turn == self._next_transfer and self._next_carried is not None:
                (carried, up) = self._next_carried
                self.drop_transfer(carried, up=up)
                self._carried(self, carried, up)
            else:
                return False
        elif turn == life.deadline:
            life.deadline = NEVER
            self.feed(life, what)
        elif turn in {life.work, life.cleanup}:
            what()
        else:
            return False
        return True

    # ---- the fleet

    def tell(self, fact: Fact) -> None:
        """Tell the fleet; what it orders is carried out when what happens now is over."""
        self.last_s = self.at_s
        self._orders.extend(self.fleet.take(fact))

    # ---- the machine

    def feed(self, life: Life, event: Event) -> None:
        """An event, and after it whatever the machine has kept for then."""
        if life.is_gone:
            return
        self.last_s = self.at_s
        way = life.point.ways.get(id(event)) or self.paths.on(life.point, event)
        self._machine_events += 1
        if isinstance(way, Way):
            self.take(life, way)
        elif isinstance(way, Refused):
            self.account.failed(str(way.problem.reason))
        if self.follow_up:
            self.feed(*self.follow_up.popleft())

    def take(self, life: Life, way: Way) -> None:
        """A transition: perform its commands, then see where the life has come to."""
        self._transitions += 1
        life.point = point = way.after
        life.memory = point.memory
        was = way.was
        if way.ends_step and was is not None:
            self._leave(life, was)
        for perform, command in way.orders:
            perform(self, life, command)
        if way.ends_grant:
            self._give_back(life)
        if way.failure is not None:
            self.account.failed(way.failure)
        if self._sink is not None:
            self._sink.moved(self.at_s, life.worker, life.actor, was, way.event, way.state, way.reason)
        if way.arrival is not None and was is not None:
            way.arrival(self, life, was)
        if way.tells:
            self.tell(Moved(self.at_s, life.actor, life.worker, way.state, way.reason, way.holds))

    def _leave(self, life: Life, was: State) -> None:
        """The step of a state is over: it took so long, and no longer than it may."""
        at_s = self.at_s
        found = self._steps.get(was)
        if found is None:
            if was is State.RUNNING:
                _stop_work(life, at_s)
            return
        name, count = found
        took_s = at_s - life.since_s
        life.since_s = at_s
        count(took_s)
        steps = life.steps
        steps[name] = steps.get(name, 0.0) + took_s
        if at_s <= life.due_s + _EPSILON_S:
            self._in_time += 1
            return
        late = f"{life.actor} was {was} until {at_s:.3f} s, and may be until {life.due_s:.3f} s"
        self.account.check("DeadlinesKept", holds=False, otherwise=lambda: late)

    def begin_step(self, life: Life) -> float:
        """A step begins, and with it the time of its state; returns how long that is."""
        life.answer = life.deadline = NEVER
        limit_s = life.point.limit_s
        life.since_s = at_s = self.at_s
        life.due_s = at_s + limit_s
        return limit_s

    # ---- GPUs: by ordinal, so that two who hold the same one are found out

    def grant(self, life: Life) -> bool:
        """Give a life the GPUs that it claims, by the lowest ordinals; says whether there were enough."""
        node = life.node
        enough = len(node.free) >= life.gpus
        self.account.check(
            "GpusWithinWorker",
            # What was lost while it was on its way there, nobody could know when it was sent.
            holds=enough or node.lost_at_s >= life.asked_s + life.steps.get(WAIT, 0.0) - _EPSILON_S,
            otherwise=lambda: (
                f"{life.actor} was sent to {life.worker} for {life.gpus} GPUs, and {len(node.free)} are free"
            ),
        )
        if not enough:
            return False
        granted, node.free = tuple(node.free[: life.gpus]), node.free[life.gpus :]
        alone = not any(ordinal in node.holders for ordinal in granted)
        self.account.check(
            "GpusHaveOneHolder",
            holds=alone,
            otherwise=lambda: f"{life.actor} was given a GPU of {life.worker} that is held",
        )
        for ordinal in granted:
            node.holders[ordinal] = life.actor
        life.granted = granted
        self.account.held(self.at_s, life.worker, len(granted))
        return True

    def _give_back(self, life: Life) -> None:
        """Take back the GPUs of a life that holds no grant any more."""
        node, granted = life.node, life.granted
        if granted:
            for ordinal in granted:
                del node.holders[ordinal]
            node.free = sorted((*node.free, *(each for each in granted if each not in node.lost)))
            self.account.held(self.at_s, life.worker, -len(granted))
            life.granted = ()

    # ---- the store

    def carry(self, life: Life, *, up: bool, size_mib: float) -> None:
        """Carry a snapshot to the store or from it; `performing` says what follows when it is there."""
        self.transfers.begin((life, up), life.worker, size_mib * (1 << 20), self.at_s)
        self.see_transfers()

    @property
    def is_store_down(self) -> bool:
        """Whether no request to the store is answered."""
        return self.ways_down > 0

    def stop_store(self, by: int) -> None:
        """The store is out of reach (1), or not any more (-1): what is being carried stands still meanwhile."""
        self.ways_down += by
        self.transfers.pause(self.at_s, paused=self.is_store_down)
        self.see_transfers()

    def drop_transfer(self, life: Life, *, up: bool) -> None:
        """It is done, or given up."""
        if self.transfers.drop((life, up), self.at_s):
            self.see_transfers()

    def see_transfers(self) -> None:
        """Which transfer ends next has changed: wait for that one."""
        found = self.transfers.next_end(self.at_s)
        if found is None:
            self._next_transfer = NEVER
            return
        end_s, self._next_carried = found
        self.turn = self._next_transfer = self.turn + 1
        heappush(self.heap, (max(end_s, self.at_s), self.turn, None, None))


def _stop_work(life: Life, at_s: float) -> None:
    """It does not run any more: so much less is left to be done."""
    life.left_s = max(0.0, life.left_s - (at_s - life.runs_s))
    life.work = NEVER
