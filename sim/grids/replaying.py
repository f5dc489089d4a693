"""One replay of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sim.fleet.config import FleetConfig
from sim.replay.outlets import ENGINES, Engine, loaded
from sim.reports.what_if import changed, fleet, shapes_of
from sim.traces.reading import read_trace

from .rows import measures

if TYPE_CHECKING:
    from pathlib import Path

    from .work import Point


def replayed(point: Point, place: Path, seed: int) -> dict[str, Any]:
    """The columns that it fills."""
    config = msgspec.msgpack.decode(point.settings, type=FleetConfig)
    header, records = read_trace(place)
    if point.workers is not None:
        records = changed(records, fleet(shapes_of(read_trace(place)[1]), point.workers))
    engine: Engine = loaded(ENGINES[point.engine])
    return measures(engine(header, records, config=config, seed=seed))
