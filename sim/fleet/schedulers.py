"""Which worker an actor goes to. A scheduler chooses among those that have room; three are shipped.

A fleet has a thousand workers and asks at every start, so workers are not looked through: they are kept by model and by
how many GPUs are free, each such set as the bits of one number, in the order in which the workers came. The lowest bit
of `free GPUs >= what is claimed` is the first that fits, and costs as much whether there are ten workers or a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import attrs

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason


@attrs.frozen(cache_hash=True)
class Claim:
    """What an actor needs of a worker. `models` is empty when any will do; `worker` is the only one that it may be on.

    Equal claims fit the same workers: whoever waits with an equal claim waits behind.
    """

    gpus: int
    models: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    worker: str | None = None

    @property
    def is_small(self) -> bool:
        """Whether the place of any one other actor is enough, so that no more helps if that is not."""
        return self.gpus <= 1 and not self.cpu_milli and not self.memory_bytes


@attrs.define(eq=False)
class Place:
    """A worker as a scheduler sees it.

    Attributes:
        name, model: of the worker.
        index: its turn among all workers that ever were: lower ones came first.
        gpus: all that are well.
        free_gpus: those that nobody was promised; below 0 when some were lost that are held.
        free_cpu_milli, free_memory_bytes: likewise; None is not counted.
        free_actors: how many more it takes on.
        is_open: whether it takes on anybody: it is up and not being drained.
    """

    name: str
    model: str
    index: int
    gpus: int
    free_gpus: int
    free_cpu_milli: int | None
    free_memory_bytes: int | None
    free_actors: int
    is_open: bool = False

    def has_room_for(self, claim: Claim) -> bool:
        """Whether the claim fits now."""
        return (
            self.is_open
            and self.free_gpus >= claim.gpus
            and self.free_actors > 0
            and (self.free_cpu_milli is None or self.free_cpu_milli >= claim.cpu_milli)
            and (self.free_memory_bytes is None or self.free_memory_bytes >= claim.memory_bytes)
            and (not claim.models or not claim.gpus or self.model in claim.models)
            and (claim.worker is None or claim.worker == self.name)
        )

    def take(self, claim: Claim, times: int) -> None:
        """Promise what is claimed (1), or give it back (-1)."""
        self.free_gpus -= times * claim.gpus
        self.free_actors -= times
        if self.free_cpu_milli is not None:
            self.free_cpu_milli -= times * claim.cpu_milli
        if self.free_memory_bytes is not None:
            self.free_memory_bytes -= times * claim.memory_bytes


class Room:
    """All workers, and the sets of those that are open, by model and by free GPUs."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._in_order: list[str] = []
        self._open: dict[str, dict[int, int]] = {}

    def add(self, place: Place) -> None:
        """A worker is there; it is not open yet."""
        self.places[place.name] = place
        self._in_order.append(place.name)

    def next_index(self) -> int:
        """The turn of the worker that is added next."""
        return len(self._in_order)

    def open(self, name: str) -> None:
        """It takes on actors from now on."""
        place = self.places[name]
        if not place.is_open:
            place.is_open = True
            self._flip(place)

    def close(self, name: str) -> None:
        """It takes on nobody any more."""
        place = self.places[name]
        if place.is_open:
            self._flip(place)
            place.is_open = False

    def remove(self, name: str) -> None:
        """It is gone."""
        self.close(name)
        del self.places[name]

    def resize(self, name: str, gpus: int) -> None:
        """So many of its GPUs are well from now on."""
        place = self.places[name]
        if place.is_open:
            self._flip(place)
        place.free_gpus += gpus - place.gpus
        place.gpus = gpus
        if place.is_open:
            self._flip(place)

    def take(self, name: str, claim: Claim) -> None:
        """Promise a worker's room."""
        self._change(self.places[name], claim, 1)

    def give_back(self, name: str, claim: Claim) -> None:
        """What was promised is free again."""
        self._change(self.places[name], claim, -1)

    def free_counts(self, claim: Claim) -> list[int]:
        """How many GPUs are free on workers that have enough of a right model: each number once, ascending."""
        found = {
            free
            for model in self._models(claim)
            for free, bits in self._open.get(model, {}).items()
            if bits and free >= claim.gpus
        }
        return sorted(found)

    def with_free(self, claim: Claim, counts: list[int]) -> Iterator[Place]:
        """The workers with room for a claim whose free GPUs are one of these numbers, in the order they came."""
        models = self._models(claim)
        bits = 0
        for model in models:
            by_free = self._open.get(model, {})
            for free in counts:
                bits |= by_free.get(free, 0)
        while bits:
            lowest = bits & -bits
            place = self.places[self._in_order[lowest.bit_length() - 1]]
            if place.has_room_for(claim):
                yield place
            bits ^= lowest

    def _models(self, claim: Claim) -> tuple[str, ...]:
        return claim.models if claim.models and claim.gpus else tuple(self._open)

    def _change(self, place: Place, claim: Claim, times: int) -> None:
        if place.is_open:
            self._flip(place)
        place.take(claim, times)
        if place.is_open:
            self._flip(place)

    def _flip(self, place: Place) -> None:
        """Put the worker into its set, or take it out of it."""
        by_free = self._open.setdefault(place.model, {})
        by_free[place.free_gpus] = by_free.get(place.free_gpus, 0) ^ (1 << place.index)


class Scheduler(Protocol):
    """Chooses a worker. It must be one that `has_room_for` the claim, and the same one for the same room."""

    def __call__(self, room: Room, claim: Claim, /) -> Place | None:
        """The worker, or None when none has room."""
        ...


def first_fit(room: Room, claim: Claim, /) -> Place | None:
    """The first worker, in the order they came, that has room."""
    return next(room.with_free(claim, room.free_counts(claim)), None)


def best_fit(room: Room, claim: Claim, /) -> Place | None:
    """The worker with the fewest free GPUs that are enough, so that large gaps stay whole; the first of several."""
    for free in room.free_counts(claim):
        for place in room.with_free(claim, [free]):
            return place
    return None


def spread(room: Room, claim: Claim, /) -> Place | None:
    """The worker with the most free GPUs, so that the loss of one costs little; the first of several."""
    for free in reversed(room.free_counts(claim)):
        for place in room.with_free(claim, [free]):
            return place
    return None


SCHEDULERS: Final[Mapping[str, Callable[[Room, Claim], Place | None]]] = MappingProxyType(
    {"first-fit": first_fit, "best-fit": best_fit, "spread": spread}
)
"""By the names that a config has."""


def named_scheduler(name: str) -> Scheduler:
    """A scheduler by the name that a config has.

    Raises:
        ProblemError: ConfigRefused: there is none.
    """
    if name not in SCHEDULERS:
        message = f"placement.scheduler is {name!r}; there are {', '.join(SCHEDULERS)}"
        raise ProblemError(
            Problem(step=Step.ADMISSION, reason=Reason.CONFIG_REFUSED, subject="placement.scheduler", message=message)
        )
    return SCHEDULERS[name]


def place_on(room: Room, claim: Claim, scheduler: Scheduler) -> Place | None:
    """Where a claim goes: to the one worker that it names, or to the one that the scheduler chooses."""
    if claim.worker is None:
        return scheduler(room, claim)
    place = room.places.get(claim.worker)
    return place if place is not None and place.has_room_for(claim) else None
