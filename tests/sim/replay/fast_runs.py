"""Small traces, and replays of them by the fast engine."""

from typing import Any

import attrs

from sim.fleet.config import LATENCIES, read_config
from sim.replay.fast.engine import replay
from sim.traces.records import Assignment, Container, Header, WorkerAdd

QUICK = {f"latency.{name}": {"kind": "constant", "value": 0.1, "source": "a test"} for name in LATENCIES}
"""Everything takes a tenth of a second."""


@attrs.define
class Heard:
    """A sink that keeps everything."""

    moves: list[Any] = attrs.field(factory=list)

    def moved(self, at_s, worker, actor, before, event, after, reason):  # noqa: PLR0917 - a MoveSink's
        self.moves.append((round(at_s, 3), worker, actor, before, event, after, reason))

    def states(self, actor, worker=None):
        return [
            str(after)
            for _, where, who, before, _, after, _ in self.moves
            if who == actor and before is not after and worker in {None, where}
        ]


def worker(name="w1", gpus=1, at_s=0.0, **more):
    return WorkerAdd(at_s=at_s, worker=name, gpus=gpus, **more)


def actor(name="a", gpus=1, at_s=1.0, **more):
    return Assignment(at_s=at_s, actor=name, containers=(Container(name="main", gpus=gpus),), **more)


def replayed(*records, seed=0, sink=None, overrides=None, config=None, **options):
    """What comes of some records."""
    found = read_config(config, QUICK | (overrides or {}))
    return replay(Header(source="a test"), iter(records), config=found, seed=seed, sink=sink, **options)


def without_cpu(result):
    return {**result.document(), "cpu_s": 0}
