"""The account of a replay: an engine tells it what happens, and it makes the result; what it keeps does not grow."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

import attrs

from sim.fleet.roster import Standing
from sim.invariants.violation import Tally
from sim.replay.quantiles import Quantiles, rounded
from sim.replay.results import (
    SLOWEST_MAX,
    VIOLATIONS_MAX,
    FaultCount,
    Occupancy,
    ReplayResult,
    Slow,
    Timeline,
    Verdict,
)
from sim.replay.timeline import Buckets, Series
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from sim.fleet.config import Cost
    from sim.fleet.facts import SnapshotFrom
    from sim.fleet.roster import Counts

OCCUPANCY_WORKERS_MAX: Final = 200
NO_TROUBLE: Final = frozenset({Reason.COMPLETED, Reason.WORKER_DRAINING})
"""Reasons that tell why an actor ends, and of no failure."""
WAIT: Final = "wait"
"""The step before the first: until a worker had room."""
_HOUR_S: Final = 3600.0


@attrs.define(eq=False)
class _Line:
    """A line of the heat map: the most GPUs of a worker of this name, how many were held, and when it was there."""

    gpus: int
    held: Series
    up: Series


@attrs.define(eq=False)
class _Worker:
    """One that is up: since when, its GPUs, their price an hour; its line of the heat map, if it has one."""

    since_s: float
    gpus: int
    price: float
    line: _Line | None


@attrs.define(eq=False)
class Account:
    """What is counted over a replay."""

    cost: Cost
    rows: int = 0
    events: int = 0
    machine_events: int = 0
    transitions: int = 0
    activations: Quantiles = attrs.field(factory=Quantiles)
    suspends: Quantiles = attrs.field(factory=Quantiles)
    steps: dict[str, Quantiles] = attrs.field(factory=dict)
    failures: dict[str, int] = attrs.field(factory=dict)
    ways: dict[str, int] = attrs.field(factory=dict)
    _planned: dict[str, int] = attrs.field(factory=dict)
    _unknown: dict[str, int] = attrs.field(factory=dict)
    _fired: dict[str, int] = attrs.field(factory=dict)
    _checked: dict[str, int] = attrs.field(factory=dict)
    _violated: dict[str, int] = attrs.field(factory=dict)
    _violations: list[str] = attrs.field(factory=list)
    _slowest: list[tuple[float, int, Slow]] = attrs.field(factory=list)
    _buckets: Buckets = attrs.field(factory=Buckets)
    _levels: dict[Standing, Series] = attrs.field(init=False)
    _claiming: Series = attrs.field(init=False)
    _held: Series = attrs.field(init=False)
    _up: Series = attrs.field(init=False)
    _workers: dict[str, _Worker] = attrs.field(factory=dict)
    _occupancy: dict[str, _Line] = attrs.field(factory=dict)
    _seen_workers: int = 0
    _seen_gpus: int = 0
    _spent: float = 0.0

    def __attrs_post_init__(self) -> None:
        shown = (Standing.RUNNING, Standing.WAITING, Standing.SUSPENDED)
        self._levels = {each: self._buckets.new() for each in shown}
        self._claiming, self._held, self._up = (self._buckets.new() for _ in range(3))

    # ---- what happens

    def counted(self, at_s: float, counts: Counts) -> None:
        """How many actors there are in which way, from now on."""
        by_standing = counts.by_standing
        for standing, series in self._levels.items():
            now = by_standing[standing]
            if now != series.level:
                series.change(at_s, now - series.level)
        if counts.claiming != self._claiming.level:
            self._claiming.change(at_s, counts.claiming - self._claiming.level)

    def worker_up(self, at_s: float, worker: str, gpus: int, model: str) -> None:
        """A worker is there."""
        self._seen_workers += 1
        self._seen_gpus += gpus
        self._up.change(at_s, gpus)
        price = self.cost.per_worker_hour + gpus * self.cost.models.get(model, self.cost.per_gpu_hour)
        line = self._occupancy.get(worker)
        if line is not None:
            line.gpus = max(line.gpus, gpus)  # it was there before, maybe with fewer
        elif gpus and len(self._occupancy) < OCCUPANCY_WORKERS_MAX:
            line = self._occupancy[worker] = _Line(gpus, self._buckets.new(), self._buckets.new())
        if line is not None:
            line.up.change(at_s, 1)
        self._workers[worker] = _Worker(at_s, gpus, price, line)

    def worker_down(self, at_s: float, worker: str) -> None:
        """A worker is there no more."""
        one = self._workers.pop(worker)
        self._up.change(at_s, -one.gpus)
        if one.line is not None:
            one.line.up.change(at_s, -1)
        self._spent += one.price * (at_s - one.since_s) / _HOUR_S

    def held(self, at_s: float, worker: str, by: int) -> None:
        """So many more GPUs of a worker are held from now on."""
        self._held.change(at_s, by)
        line = self._workers[worker].line
        if line is not None:
            line.held.change(at_s, by)

    def step(self, name: str) -> Quantiles:
        """Where it is counted how long a step has taken."""
        return self.steps.setdefault(name, Quantiles())

    def gather(self) -> None:
        """Count what steps have taken since the last time."""
        for each in self.steps.values():
            each.gather()

    def activated(self, at_s: float, asked_s: float, actor: str, worker: str, steps: Mapping[str, float]) -> None:
        """An actor has come to Running, `asked_s` being when that was wanted."""
        took_s = at_s - asked_s
        self.activations.add(took_s)
        slowest = self._slowest
        if len(slowest) == SLOWEST_MAX and took_s <= slowest[0][0]:
            return
        told = {name: rounded(seconds) for name, seconds in steps.items()}
        slow = Slow(actor=actor, worker=worker, at_s=rounded(at_s), activation_s=rounded(took_s), steps=told)
        entry = (took_s, -self.activations.count, slow)  # of equal ones, those that came first stay
        if len(slowest) < SLOWEST_MAX:
            heapq.heappush(slowest, entry)
        else:
            heapq.heapreplace(slowest, entry)

    def began(self, way: SnapshotFrom) -> None:
        """An activation begins, with this."""
        self.ways[str(way)] = self.ways.get(str(way), 0) + 1

    def failed(self, reason: str, count: int = 1) -> None:
        """Somebody got into trouble."""
        self.failures[reason] = self.failures.get(reason, 0) + count

    def unknown(self, fault: str) -> None:
        """A fault of the trace came of which this engine knows nothing."""
        self.planned(fault, fired=False)
        self._unknown[fault] = self._unknown.get(fault, 0) + 1

    def planned(self, fault: str, *, fired: bool) -> None:
        """A fault of the trace came, and happened to somebody or not."""
        self._planned[fault] = self._planned.get(fault, 0) + 1
        self._fired[fault] = self._fired.get(fault, 0) + fired

    def checked(self, name: str, count: int) -> None:
        """An invariant was looked at so often, and held; those of every step are counted where the step is."""
        if count:
            self._checked[name] = self._checked.get(name, 0) + count

    def check(self, name: str, *, holds: bool, otherwise: Callable[[], str]) -> None:
        """An invariant was looked at; `otherwise` says what is wrong where it does not hold."""
        self._checked[name] = self._checked.get(name, 0) + 1
        if not holds:
            self._violated[name] = self._violated.get(name, 0) + 1
            if len(self._violations) < VIOLATIONS_MAX:
                self._violations.append(f"{name}: {otherwise()}")

    # ---- what came of it

    def result(
        self,
        *,
        seed: int,
        engine: str,
        source: str,
        skipped: int,
        end_s: float,
        cpu_s: float,
        counts: Counts,
        config: Mapping[str, Any],
    ) -> ReplayResult:
        """The whole, when nothing happens any more."""
        for worker in list(self._workers):
            self.worker_down(end_s, worker)
        timeline, occupancy = self._timeline(end_s), self._heat(end_s)
        self._up.until(end_s)
        self._claiming.until(end_s)
        return ReplayResult(
            seed=seed,
            engine=engine,
            source=source,
            config=config,
            rows=self.rows,
            skipped=skipped,
            events=self.events,
            machine_events=self.machine_events,
            transitions=self.transitions,
            lifecycles=self.activations.count,
            virtual_s=rounded(end_s),
            cpu_s=round(cpu_s, 3),
            activation_s=self.activations.document(),
            suspend_s=self.suspends.document(),
            density=rounded(self._claiming.total / self._up.total) if self._up.total else 0.0,
            failures=dict(sorted(self.failures.items())),
            faults={
                name: FaultCount(planned=count, fired=self._fired[name])
                for name, count in sorted(self._planned.items())
            },
            invariants={
                name: Tally(checked=count, violated=self._violated.get(name, 0))
                for name, count in sorted(self._checked.items())
            },
            verdict=Verdict.VIOLATED if self._violated else Verdict.HELD,
            violations=tuple(self._violations),
            states={
                each.name.capitalize(): count
                for each, count in counts.by_standing.items()
                if each is not Standing.GONE and (count or each in self._levels)
            },
            ways=dict(sorted(self.ways.items())),
            steps={name: each.document() for name, each in sorted(self.steps.items()) if each.count},
            workers=self._seen_workers,
            gpus=self._seen_gpus,
            gpu_seconds={
                "held": rounded(self._held.total),
                "free": rounded(max(self._up.total - self._held.total, 0.0)),
            },
            cost=rounded(self._spent),
            slowest=tuple(slow for *_, slow in sorted(self._slowest, key=lambda each: (-each[0], -each[1]))),
            timeline=timeline,
            occupancy=occupancy,
            notes=tuple(self._notes(engine)),
        )

    def _timeline(self, end_s: float) -> Timeline:
        series = self._buckets
        at_s = series.times(end_s)
        running, waiting, suspended = (series.means(each, end_s) for each in self._levels.values())
        return Timeline(
            bucket_s=series.bucket_s,
            at_s=at_s,
            running=running,
            waiting=waiting,
            suspended=suspended,
            held_gpus=series.means(self._held, end_s),
            gpus=series.means(self._up, end_s),
        )

    def _heat(self, end_s: float) -> Occupancy:
        means, lines = self._buckets.means, self._occupancy.values()
        return Occupancy(
            workers=list(self._occupancy),
            held=[
                [round(level / line.gpus, 3) if level else 0.0 for level in means(line.held, end_s)] for line in lines
            ],
            up=[[round(share, 3) for share in means(line.up, end_s)] for line in lines],
        )

    def _notes(self, engine: str) -> Iterator[str]:
        if self.rows and not self._seen_workers:
            yield "the trace adds no worker, so nobody could run; `greenroom sim what-if` adds some"
        for name, count in sorted(self._unknown.items()):
            yield f"the {engine} engine has no fault {name}: none of {count} has happened"
