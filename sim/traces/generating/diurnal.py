"""Days and nights: requests come as a wave over the day, for few actors often and for many of them seldom."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from sim.traces.activity import suspended_when_idle
from sim.traces.drawing import Chance, Zipf, numbered
from sim.traces.records import Assignment, Container, Record, Resume

from .workload import at, fleet, merged

if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.frozen(kw_only=True)
class Diurnal:
    """`diurnal`.

    Attributes:
        workers: so many, all alike.
        gpus_per_worker: of each.
        model: of these GPUs.
        actors: who is asked.
        gpus: of each of them.
        days: so many.
        day_s: how long a day is; a short one is a whole day sooner.
        requests_per_hour: over the whole day.
        swing: from 0, all hours alike, to 1, nobody asks at night.
        peak: when most ask, as a part of the day.
        skew: how much more the first actors are asked than the last (Zipf's law); 0 is all alike.
        busy_s: the median time that a request takes.
        idle_timeout_s: an actor that was idle for so long is suspended; 0 leaves that to the fleet.
    """

    workers: int = 3
    gpus_per_worker: int = 4
    model: str = "L4"
    actors: int = 40
    gpus: int = 1
    days: float = 1.0
    day_s: float = 86400.0
    requests_per_hour: float = 40.0
    swing: float = 0.8
    peak: float = 0.6
    skew: float = 0.8
    busy_s: float = 20.0
    idle_timeout_s: float = 300.0

    def records(self, seed: int) -> Iterator[Record]:
        """Each actor is assigned at its first request."""
        lives = suspended_when_idle(self._requests(seed), self.idle_timeout_s or None)
        return merged(fleet(self.workers, self.gpus_per_worker, self.model), lives)

    def _requests(self, seed: int) -> Iterator[Record]:
        chance, popularity = Chance(seed, "diurnal"), Zipf(self.actors, self.skew)
        known: set[str] = set()
        # As many as at the peak all day long, of which the night has but its share (Lewis and Shedler's thinning).
        mean_s, at_s = 3600.0 / (self.requests_per_hour * (1 + self.swing)), 0.0
        while (at_s := at_s + chance.exponential(mean_s)) < self.days * self.day_s:
            wave = 1 + self.swing * math.cos(2 * math.pi * (at_s / self.day_s - self.peak))
            if chance.share() * (1 + self.swing) > wave:
                continue
            name = numbered("actor", popularity.draw(chance), self.actors)
            if name not in known:
                known.add(name)
                containers = (Container(name="main", gpus=self.gpus),)
                yield Assignment(at_s=at(at_s), actor=name, containers=containers, class_="agent")
            yield Resume(at_s=at(at_s), actor=name, busy_s=at(chance.lognormal(self.busy_s, 0.6)))
