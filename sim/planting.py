"""Planned faults in a running world: which call they meet, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio
import attrs

from sim.faults import FaultReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.faults import Fault
    from sim.world.calls import Call


class Chance(Protocol):
    """The part of random.Random that is needed."""

    def random(self) -> float:
        """A number of 0 <= x < 1."""
        ...


@attrs.define(eq=False)
class Planted:
    """A planned fault and its counters.

    Attributes:
        fault: the plan.
        seen: how many calls were of its kind.
        fired: the numbers of the calls that it happened to.
        released: set when who hangs by it may go on.
        parts: of calls that it was to cut, what they consist of: names of parts of calls of files, waits of commands.
    """

    fault: Fault
    seen: int = 0
    fired: list[int] = attrs.field(factory=list)
    released: anyio.Event = attrs.field(factory=anyio.Event)
    parts: dict[int, list[str]] = attrs.field(factory=dict)

    @property
    def has_fired(self) -> bool:
        """Whether it happened at all."""
        return bool(self.fired)

    def release(self) -> None:
        """Let go on who hangs by it, now and later."""
        self.released.set()

    def missed(self, number: int) -> None:
        """It met this call, which does not have the part that was to be cut: nothing has happened."""
        self.fired.remove(number)

    def report(self) -> FaultReport:
        """What became of it so far."""
        return FaultReport(fault=self.fault, seen=self.seen, fired=tuple(self.fired))

    def meets(self, call: Call, chance: Chance) -> bool:
        """Whether it happens to this call; counts."""
        when = self.fault.when
        if not when.fits(call):
            return False
        self.seen += 1
        if when.nth is not None and self.seen != when.nth:
            return False
        if when.times_max is not None and len(self.fired) >= when.times_max:
            return False
        if when.probability < 1 and chance.random() >= when.probability:
            return False
        self.fired.append(call.number)
        return True


class Plan:
    """Every planned fault of a run. The first that meets a call happens to it."""

    def __init__(self, chance: Chance, faults: Iterable[Fault] = ()) -> None:
        self._chance = chance
        self.planted: list[Planted] = []
        for fault in faults:
            self.plant(fault)

    def plant(self, fault: Fault) -> Planted:
        """Add a fault, which counts from now on.

        Raises:
            ValueError: there is one with its id.
        """
        if any(planted.fault.id == fault.id for planted in self.planted):
            raise ValueError(f"there is a fault {fault.id} already")
        planted = Planted(fault)
        self.planted.append(planted)
        return planted

    def meeting(self, call: Call) -> Planted | None:
        """The first fault that happens to this call; those planted after it do not count the call."""
        return next((planted for planted in self.planted if planted.meets(call, self._chance)), None)

    def reports(self) -> tuple[FaultReport, ...]:
        """What became of each, in the order of planting."""
        return tuple(planted.report() for planted in self.planted)
