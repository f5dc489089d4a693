"""The faithful engine from outside: a trace and a config in, a result out.

result = replay(header, records, config=read_config(), seed=7)
"""

from __future__ import annotations

import time  # noqa: TID251 - how long it took is told; nothing is decided by it
from typing import TYPE_CHECKING, Final

from sim.engine import JumpingClock, run_in_virtual_time
from sim.fleet.differing import differing
from sim.fleet.dispatch import Fleet
from sim.replay.faithful.conducting import Conductor
from sim.replay.faithful.refusing import require_heard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.fleet.config import FleetConfig
    from sim.replay.results import MoveSink, ReplayResult
    from sim.traces.records import Header, Record

NAME: Final = "faithful"


def replay(
    header: Header,
    records: Iterator[Record],
    *,
    config: FleetConfig,
    seed: int = 0,
    sink: MoveSink | None = None,
) -> ReplayResult:
    """Replay a trace until nothing happens any more.

    Args:
        header: of the trace.
        records: in order; taken one at a time, and none is kept. A file that they come from must be open already.
        config: what the fleet is like.
        seed: of everything that is left to chance.
        sink: hears of every transition.

    Raises:
        ProblemError: the trace cannot be read; there is no such scheduler; a setting acts only in the fast engine.
        RealWorldError: something reached for the real world.
    """
    require_heard(config)
    began_s = time.process_time()
    conductor = Conductor(Fleet(config), config=config, seed=seed, sink=sink)
    clock = JumpingClock(conductor.when_quiet)
    end_s = run_in_virtual_time(lambda: conductor.conduct(records), seed=seed, clock=clock)
    return conductor.account.result(
        seed=seed,
        engine=NAME,
        source=header.source,
        skipped=conductor.fleet.skipped,
        end_s=end_s,
        cpu_s=time.process_time() - began_s,
        counts=conductor.fleet.counts,
        config=differing(config),
    )
