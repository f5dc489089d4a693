"""One run of chaos of a sweep."""

from __future__ import annotations

import time  # noqa: TID251 - how long it took is told; nothing is decided by it
from typing import TYPE_CHECKING, Any

import orjson

from sim.chaos.config import CampaignConfig
from sim.chaos.drawing import plan_of
from sim.chaos.plan import CONVERTER
from sim.chaos.running import run_plan
from sim.chaos.summary import summary_of

if TYPE_CHECKING:
    from pathlib import Path

    from .work import Point


def broken(point: Point, _place: Path, seed: int) -> dict[str, Any]:
    """The columns that it fills; there is no trace."""
    config = CONVERTER.structure(orjson.loads(point.settings), CampaignConfig)
    began_s = time.process_time()
    outcome = run_plan(plan_of(seed, config))
    summary = summary_of(outcome)
    return {
        "verdict": str(summary.phase or "ok"),
        "violated": len(outcome.found),
        "transitions": outcome.transitions,
        "virtual_s": outcome.virtual_s,
        "cpu_s": round(time.process_time() - began_s, 3),
        "document": orjson.dumps(CONVERTER.unstructure(summary)).decode(),
    }
