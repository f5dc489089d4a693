"""Many seeds: in this process one after the other, or divided among processes of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from sim.beside import PartLostError, beside, run_part
from sim.chaos.config import CampaignConfig
from sim.chaos.defects import planted
from sim.chaos.drawing import plan_of
from sim.chaos.outcome import Found, Outcome, Phase
from sim.chaos.plan import CONVERTER
from sim.chaos.running import run_plan
from sim.chaos.summary import Summary, added, summary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.ports import Processes

CHUNK: Final = 40
"""Seeds of one process: some ten seconds, of which its start takes one."""
CHUNK_S: Final = 3600.0


def run_seeds(seeds: Sequence[int], config: CampaignConfig, *, defect: str | None = None) -> Summary:
    """Run seeds in this process."""
    with planted(defect):
        return added([summary_of(run_plan(plan_of(seed, config))) for seed in seeds])


def run_campaign(
    seeds: range,
    config: CampaignConfig,
    *,
    defect: str | None = None,
    processes: int = 1,
    tell: Callable[[Summary, float], None] = lambda _summary, _elapsed_s: None,
) -> Summary:
    """Run seeds in processes of their own.

    Args:
        seeds: which.
        config: how their plans are drawn.
        defect: what is planted in each.
        processes: how many run beside each other.
        tell: is given the sum so far whenever a part is done, and the seconds that it took.
    """
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    return anyio.run(partial(_run_chunks, chunks, config, defect, processes, tell))


async def _run_chunks(
    chunks: Sequence[range],
    config: CampaignConfig,
    defect: str | None,
    processes: int,
    tell: Callable[[Summary, float], None],
) -> Summary:
    total = Summary()
    began_s = anyio.current_time()

    async def perform(port: Processes, chunk: range) -> None:
        nonlocal total
        part = await _run_chunk(port, chunk, config, defect)
        total = added([total, part])
        tell(total, anyio.current_time() - began_s)

    await beside(iter(chunks), processes, perform)
    return total


async def _run_chunk(port: Processes, chunk: range, config: CampaignConfig, defect: str | None) -> Summary:
    wanted = {"first": chunk[0], "count": len(chunk), "config": CONVERTER.unstructure(config), "defect": defect}
    try:
        told = await run_part(port, "sim.chaos.part", orjson.dumps(wanted).decode(), deadline_s=CHUNK_S)
    except PartLostError as error:
        return _broken(chunk, str(error))
    return CONVERTER.structure(orjson.loads(told), Summary)


def _broken(chunk: range, message: str) -> Summary:
    """A process that has not come to its end: none of its seeds is known to be sound."""
    found = Found(
        phase=Phase.CRASH, name="Process", subject=f"seeds {chunk[0]}:{chunk[-1] + 1}", message=message, at_s=0
    )
    return summary_of(Outcome(seed=chunk[0], found=(found,)))
