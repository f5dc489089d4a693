"""Small traces that come with Greenroom: each is what `greenroom sim generate NAME --seed 1` makes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sim.traces.generating.registry import WORKLOADS

SEED: Final = 1
"""Of all of them."""


def shipped(name: str) -> Path | None:
    """Where the shipped trace of this name is; None if there is none."""
    return Path(__file__).with_name(f"{name}.jsonl") if name in WORKLOADS else None
