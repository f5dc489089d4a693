"""Everything at once on one fleet: agents, training, services that are never idle, batches without GPUs, a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from sim.traces.drawing import Chance, numbered
from sim.traces.records import Assignment, Container, Record, WorkerAdd, WorkerDrain

from .agents import BurstyAgents
from .training import TrainingWithSidecars
from .workload import at, fleet, merged

if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.frozen(kw_only=True)
class Mixed:
    """`mixed`.

    Attributes:
        workers: so many, all alike.
        gpus_per_worker: of each.
        model: of these GPUs.
        agents: as those of `bursty-agents`.
        jobs: as those of `training-with-sidecars`, for 600 s at the median.
        services: with one GPU each, from the beginning to the end.
        batches: without a GPU, for 60 s at the median.
        replaced_workers: so many are drained in the second half, each after another one has come.
        duration_s: nobody comes after it.
        idle_timeout_s: an agent that was idle for so long is suspended; 0 leaves that to the fleet.
    """

    workers: int = 3
    gpus_per_worker: int = 8
    model: str = "A100"
    agents: int = 12
    jobs: int = 10
    services: int = 3
    batches: int = 20
    replaced_workers: int = 1
    duration_s: float = 1800.0
    idle_timeout_s: float = 30.0

    def records(self, seed: int) -> Iterator[Record]:
        """The parts are those of the other workloads, with the same seed."""
        agents = BurstyAgents(
            workers=0, actors=self.agents, duration_s=self.duration_s, idle_timeout_s=self.idle_timeout_s
        )
        jobs = TrainingWithSidecars(
            workers=0,
            gpus_per_worker=self.gpus_per_worker,
            actors=self.jobs,
            duration_s=self.duration_s,
            takes_s=600.0,
        )
        return merged(
            fleet(self.workers, self.gpus_per_worker, self.model),
            self._services(),
            agents.records(seed),
            jobs.records(seed),
            *(self._batch(seed, index) for index in range(self.batches)),
            self._rollout(),
        )

    def _services(self) -> Iterator[Record]:
        for index in range(self.services):
            name = numbered("service", index, self.services)
            yield Assignment(at_s=0.0, actor=name, containers=(Container(name="server", gpus=1),), class_="service")

    def _batch(self, seed: int, index: int) -> Iterator[Record]:
        chance, name = Chance(seed, "batch", index), numbered("batch", index, self.batches)
        at_s, for_s = at(chance.between(0, self.duration_s)), at(chance.lognormal(60.0, 0.7))
        yield Assignment(at_s=at_s, actor=name, containers=(Container(name="main"),), for_s=for_s, class_="batch")

    def _rollout(self) -> Iterator[Record]:
        count = min(self.replaced_workers, self.workers)
        for index in range(count):
            at_s = at(self.duration_s * (0.5 + index / (2 * count)))
            fresh = numbered("fresh", index, count)
            yield WorkerAdd(at_s=at_s, worker=fresh, gpus=self.gpus_per_worker, model=self.model)
            yield WorkerDrain(at_s=at_s, worker=numbered("worker", index, self.workers))
