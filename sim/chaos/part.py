"""`python -m sim.chaos.part JSON`: one part of a campaign, in a process of its own; its sum goes to stdout."""

from __future__ import annotations

import gc
import sys
from typing import Final

import orjson

from sim.chaos.campaign import run_seeds
from sim.chaos.config import CampaignConfig
from sim.chaos.plan import CONVERTER

_YOUNG_MAX: Final = 50_000
"""Objects between two looks for cycles: a run is over before many are there, and looks take a tenth of its time."""


def main(words: list[str]) -> None:
    """Run the seeds that the one argument names."""
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX)
    (wanted,) = map(orjson.loads, words)
    config = CONVERTER.structure(wanted["config"], CampaignConfig)
    seeds = range(wanted["first"], wanted["first"] + wanted["count"])
    summary = run_seeds(seeds, config, defect=wanted["defect"])
    sys.stdout.buffer.write(orjson.dumps(CONVERTER.unstructure(summary)))


if __name__ == "__main__":
    main(sys.argv[1:])
