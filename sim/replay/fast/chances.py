"""What the fast engine leaves to chance: how long a step takes, whether it fails, how large a snapshot is.

Each has a stream of numbers of its own, by its name: a config with another latency of `create` draws the same for all
else.
"""

from __future__ import annotations

import random  # noqa: TID251 - seeded: the only chance of a simulation
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from sim.fleet.config import Failure, FleetConfig

MIB: Final = 1 << 20


@attrs.frozen
class Trouble:
    """The failures that a step can meet: one number says which of them comes, if any."""

    random: Callable[[], float]
    bounds: Sequence[tuple[float, Failure]]

    def meets(self) -> Failure | None:
        """The failure that this step meets."""
        chance = self.random()
        for bound, failure in self.bounds:
            if chance < bound:
                return failure
        return None


class Chances:
    """All of them, of one config and one seed.

    Attributes:
        of: by the name of a step: how long it takes, so much more for each MiB of its snapshot, and what it may meet.
        request_s, worker_start_s, generate_s, recover_s: how long these take.
    """

    def __init__(self, config: FleetConfig, seed: int) -> None:
        self._seed = seed
        self.troubles = self._troubles(config)
        self.of = {
            name: (each.drawn_by(self._stream(f"latency.{name}")), each.per_mib, self.troubles.get(name))
            for name, each in config.latency.items()
        }
        self.request_s, self.worker_start_s, self.generate_s, self.recover_s = (
            self.of[name][0] for name in ("store", "worker_start", "generate", "recover")
        )
        self._mib = config.snapshots.mib.drawn_by(self._stream("snapshots.mib"))
        self._per_gpu_mib = config.snapshots.per_gpu_mib.drawn_by(self._stream("snapshots.per_gpu_mib"))

    def size_mib(self, gpus: int) -> float:
        """How large a snapshot is of an actor with so many GPUs."""
        return self._mib() + (gpus * self._per_gpu_mib() if gpus else 0.0)

    def _troubles(self, config: FleetConfig) -> dict[str, Trouble]:
        by_step: dict[str, list[tuple[float, Failure]]] = {}
        for failure in config.failure.values():
            if failure.probability > 0:
                met = by_step.setdefault(failure.step, [])
                met.append((failure.probability + (met[-1][0] if met else 0.0), failure))
        return {step: Trouble(self._stream(f"failure.{step}").random, met) for step, met in by_step.items()}

    def _stream(self, name: str) -> random.Random:
        # A text as seed is digested, which does not depend on how this process hashes.
        return random.Random(f"{self._seed}/{name}")  # noqa: S311 - not for secrets
