"""A thundering herd: everybody is suspended, and then everybody is asked for something at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from sim.traces.activity import suspended_when_idle
from sim.traces.drawing import Chance, numbered
from sim.traces.records import Assignment, Container, Record, Resume

from .workload import at, fleet, merged

if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.frozen(kw_only=True)
class ThunderingHerd:
    """`thundering-herd`.

    Attributes:
        workers: so many, all alike.
        gpus_per_worker: of each.
        model: of these GPUs.
        actors: the herd.
        gpus: of each of them.
        herds: how often they all come.
        herd_every_s: from one time to the next; they are assigned one after the other before the first.
        within_s: they come within it, at any time, and before the next herd.
        busy_s: the median time that a request takes.
        idle_timeout_s: an actor that was idle for so long is suspended; 0 leaves that to the fleet.
    """

    workers: int = 5
    gpus_per_worker: int = 4
    model: str = "L4"
    actors: int = 40
    gpus: int = 1
    herds: int = 3
    herd_every_s: float = 300.0
    within_s: float = 1.0
    busy_s: float = 5.0
    idle_timeout_s: float = 20.0

    def records(self, seed: int) -> Iterator[Record]:
        """Half of the time before the first herd goes by with assignments."""
        herd = merged(*(self._one(seed, index) for index in range(self.actors)))
        lives = suspended_when_idle(herd, self.idle_timeout_s or None)
        return merged(fleet(self.workers, self.gpus_per_worker, self.model), lives)

    def _one(self, seed: int, index: int) -> Iterator[Record]:
        chance, name = Chance(seed, "herd", index), numbered("actor", index, self.actors)
        at_s = at(index * self.herd_every_s / 2 / self.actors)
        yield Assignment(at_s=at_s, actor=name, containers=(Container(name="main", gpus=self.gpus),), class_="agent")
        yield Resume(at_s=at_s, actor=name, busy_s=at(chance.lognormal(self.busy_s, 0.4)))
        for herd in range(1, self.herds + 1):
            at_s = at(herd * self.herd_every_s + chance.between(0, min(self.within_s, self.herd_every_s)))
            yield Resume(at_s=at_s, actor=name, busy_s=at(chance.lognormal(self.busy_s, 0.4)))
