"""What would be if there were more or fewer workers, and if actors were suspended sooner or later.

The same trace is replayed by the fast engine for each pair. Its workers and its suspends are left out: so many workers
as are asked for are there from the beginning to the end, of the shapes of the trace's own ones, and the idle timeout
decides who is suspended. Whoever had to be on one worker may be on any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import orjson

from sim.replay.fast.engine import replay
from sim.traces.records import Assignment, Suspend, WorkerAdd, WorkerDrain, WorkerRemove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sim.fleet.config import FleetConfig
    from sim.replay.results import ReplayResult
    from sim.traces.records import Header, Record

FORMAT: Final = 1
GPUS: Final = 8
"""Of a worker, where neither the trace nor anybody says it."""
SHAPES_MAX: Final = 100_000
_HOUR_S: Final = 3600.0


@attrs.frozen(kw_only=True)
class Cell:
    """What came of one pair.

    Attributes:
        workers, idle_timeout_s: the pair.
        gpus: of all workers.
        p50_s, p95_s, max_s: of the activations, waiting included.
        activations: how many there were.
        density: actors by GPU, a mean over time.
        held: the share of the GPUs' time in which somebody held them.
        cost: by the config's prices, from the beginning to when everybody rests.
        cost_per_hour: the same for each hour: a long idle timeout makes the end come later, and nothing dearer.
        waiting: who found no room until the end: what the other figures leave out.
        failed: who came to rest as Failed.
        failures: of all reasons.
        violated: of all invariants.
    """

    workers: int
    idle_timeout_s: float
    gpus: int
    p50_s: float
    p95_s: float
    max_s: float
    activations: int
    density: float
    held: float
    cost: float
    cost_per_hour: float
    waiting: int
    failed: int
    failures: int
    violated: int

    def serves(self, p95_s: float) -> bool:
        """Whether somebody came to run, nobody waits for ever, and nearly all came within that time."""
        return self.activations > 0 and not self.waiting and not self.violated and self.p95_s <= p95_s


@attrs.frozen(kw_only=True)
class WhatIf:
    """The whole table.

    Attributes:
        source: of the trace.
        seed: of everything that is left to chance.
        workers, idle_timeouts_s: its rows and columns.
        cells: row by row.
        p95_s: what p95 of the activations is to be at most; None where nobody asked.
        chosen: the cheapest that is so; None if there is none.
    """

    source: str
    seed: int
    workers: tuple[int, ...]
    idle_timeouts_s: tuple[float, ...]
    cells: tuple[Cell, ...]
    p95_s: float | None
    chosen: Cell | None

    def as_json(self) -> bytes:
        """One document, which ends with a line feed; `inf`, which JSON lacks, is null."""
        return orjson.dumps({"v": FORMAT, **attrs.asdict(self)}, option=orjson.OPT_APPEND_NEWLINE)


def what_if(
    opened: Callable[[], tuple[Header, Iterator[Record]]],
    *,
    workers: Sequence[int],
    idle_timeouts_s: Sequence[float],
    configured: Callable[[float], FleetConfig],
    shape: WorkerAdd | None = None,
    seed: int = 0,
    p95_s: float | None = None,
) -> WhatIf:
    """Replay a trace for each pair.

    Args:
        opened: opens the trace anew each time.
        workers: how many there are to be.
        idle_timeouts_s: after how much idleness an actor is suspended.
        configured: the config of the fleet with that idle timeout.
        shape: of each worker; None for those of the trace, in turn.
        seed: of everything that is left to chance.
        p95_s: what p95 of the activations is to be at most.

    Raises:
        ProblemError: the trace cannot be read, or the config names no scheduler.
    """
    header, records = opened()
    shapes = [shape] if shape is not None else shapes_of(records)
    cells = tuple(
        _cell(
            count,
            idle_timeout_s,
            replay(
                header,
                changed(opened()[1], fleet(shapes, count)),
                config=configured(idle_timeout_s),
                seed=seed,
            ),
        )
        for count in workers
        for idle_timeout_s in idle_timeouts_s
    )
    return WhatIf(
        source=header.source,
        seed=seed,
        workers=tuple(workers),
        idle_timeouts_s=tuple(idle_timeouts_s),
        cells=cells,
        p95_s=p95_s,
        chosen=None if p95_s is None else cheapest(cells, p95_s),
    )


def cheapest(cells: Iterable[Cell], p95_s: float) -> Cell | None:
    """The cheapest that serves, by the hour; of equally cheap ones the quickest."""
    found = [cell for cell in cells if cell.serves(p95_s)]
    return min(
        found, key=lambda cell: (cell.cost_per_hour, cell.p95_s, cell.workers, cell.idle_timeout_s), default=None
    )


def shapes_of(records: Iterable[Record]) -> list[WorkerAdd]:
    """The trace's own workers, each name once; one with some GPUs of any model where it has none."""
    found: dict[str, WorkerAdd] = {}
    for record in records:
        if isinstance(record, WorkerAdd) and len(found) < SHAPES_MAX:
            found.setdefault(record.worker, record)
    return list(found.values()) or [WorkerAdd(at_s=0.0, worker="worker-1", gpus=GPUS)]


def fleet(shapes: Sequence[WorkerAdd], count: int) -> Iterator[WorkerAdd]:
    """So many workers: the first ones have the names of the trace's, so that its faults still find them."""
    names = {shape.worker for shape in shapes}
    for index in range(count):
        shape = shapes[index % len(shapes)]
        name = shape.worker if index < len(shapes) else f"more-{index + 1}"
        while index >= len(shapes) and name in names:
            name = f"{name}-more"
        yield msgspec.structs.replace(shape, at_s=0.0, worker=name)


def changed(records: Iterable[Record], workers: Iterable[WorkerAdd]) -> Iterator[Record]:
    """The trace with other workers, and with no suspends but those that the idle timeout brings."""
    yield from workers
    for record in records:
        if isinstance(record, Assignment) and record.worker is not None:
            yield msgspec.structs.replace(record, worker=None)
        elif not isinstance(record, WorkerAdd | WorkerRemove | WorkerDrain | Suspend):
            yield record


def _cell(workers: int, idle_timeout_s: float, result: ReplayResult) -> Cell:
    held, free = result.gpu_seconds["held"], result.gpu_seconds["free"]
    activation: Any = result.activation_s
    return Cell(
        workers=workers,
        idle_timeout_s=idle_timeout_s,
        gpus=result.gpus,
        p50_s=activation["p50"],
        p95_s=activation["p95"],
        max_s=activation["max"],
        activations=result.lifecycles,
        density=result.density,
        held=round(held / (held + free), 6) if held + free else 0.0,
        cost=result.cost,
        cost_per_hour=round(result.cost / result.virtual_s * _HOUR_S, 3) if result.virtual_s else 0.0,
        waiting=result.states.get("Waiting", 0),
        failed=result.states.get("Failed", 0),
        failures=sum(result.failures.values()),
        violated=sum(each.violated for each in result.invariants.values()),
    )
