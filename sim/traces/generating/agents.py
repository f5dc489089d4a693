"""Agents that people talk to: nothing for minutes, then several requests with a pause for reading between them."""

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
class BurstyAgents:
    """`bursty-agents`.

    Attributes:
        workers: so many, all alike.
        gpus_per_worker: of each.
        model: of these GPUs.
        actors: agents.
        gpus: of each agent.
        duration_s: nobody asks after it.
        idle_between_bursts_s: the mean pause between two bursts, which may be of any length.
        requests_per_burst: their mean number; each is as likely the last one.
        think_s: the mean pause between an answer and the next request.
        busy_s: the median time that a request takes.
        idle_timeout_s: an agent that was idle for so long is suspended; 0 leaves that to the fleet.
    """

    workers: int = 2
    gpus_per_worker: int = 4
    model: str = "L4"
    actors: int = 20
    gpus: int = 1
    duration_s: float = 1800.0
    idle_between_bursts_s: float = 300.0
    requests_per_burst: float = 5.0
    think_s: float = 8.0
    busy_s: float = 2.0
    idle_timeout_s: float = 30.0

    def records(self, seed: int) -> Iterator[Record]:
        """Each agent is assigned at its first request."""
        agents = merged(*(self._agent(seed, index) for index in range(self.actors)))
        lives = suspended_when_idle(agents, self.idle_timeout_s or None)
        return merged(fleet(self.workers, self.gpus_per_worker, self.model), lives)

    def _agent(self, seed: int, index: int) -> Iterator[Record]:
        chance, name = Chance(seed, "agent", index), numbered("agent", index, self.actors)
        at_s = at(chance.exponential(self.idle_between_bursts_s))
        if at_s < self.duration_s:
            yield Assignment(
                at_s=at_s, actor=name, containers=(Container(name="main", gpus=self.gpus),), class_="agent"
            )
        while at_s < self.duration_s:
            for _ in range(chance.geometric(self.requests_per_burst)):
                busy_s = at(chance.lognormal(self.busy_s, 0.6))
                if at_s < self.duration_s:
                    yield Resume(at_s=at_s, actor=name, busy_s=busy_s)
                at_s = at(at_s + busy_s + chance.exponential(self.think_s))
            at_s = at(at_s + chance.exponential(self.idle_between_bursts_s))
