"""Training jobs with sidecars: one container with GPUs and some without, which run for long and end by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from sim.traces.drawing import Chance, numbered
from sim.traces.records import Assignment, Container, Record, Resume, Suspend

from .workload import at, fleet, merged

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES: Final = ((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1))
"""How many GPUs a job claims, and the share of jobs that do."""


@attrs.frozen(kw_only=True)
class TrainingWithSidecars:
    """`training-with-sidecars`.

    Attributes:
        workers: so many, all alike.
        gpus_per_worker: of each; no job claims more.
        model: of these GPUs.
        actors: jobs.
        duration_s: they come within it, at any time.
        takes_s: the median time that a job runs.
        sidecars: containers without a GPU beside the one that trains.
        preempted_share: of the jobs, which are suspended once in the middle, for somebody more important.
        preempted_for_s: the mean time of that.
    """

    workers: int = 4
    gpus_per_worker: int = 8
    model: str = "A100"
    actors: int = 40
    duration_s: float = 7200.0
    takes_s: float = 1800.0
    sidecars: int = 2
    preempted_share: float = 0.25
    preempted_for_s: float = 300.0

    def records(self, seed: int) -> Iterator[Record]:
        """Each job is a stream of its own."""
        jobs = (self._job(seed, index) for index in range(self.actors))
        return merged(fleet(self.workers, self.gpus_per_worker, self.model), *jobs)

    def _job(self, seed: int, index: int) -> Iterator[Record]:
        chance, name = Chance(seed, "job", index), numbered("job", index, self.actors)
        at_s = at(chance.between(0, self.duration_s))
        for_s = at(chance.lognormal(self.takes_s, 0.8))
        gpus = min(SIZES[chance.among([share for _, share in SIZES])][0], self.gpus_per_worker)
        beside = tuple(Container(name=f"sidecar-{number + 1}") for number in range(self.sidecars))
        containers = (Container(name="trainer", gpus=gpus), *beside)
        yield Assignment(at_s=at_s, actor=name, containers=containers, for_s=for_s, class_="train")
        if chance.share() < self.preempted_share:
            suspended_s = at(at_s + for_s * chance.between(0.2, 0.8))
            yield Suspend(at_s=suspended_s, actor=name)
            yield Resume(at_s=at(suspended_s + chance.exponential(self.preempted_for_s)), actor=name)
