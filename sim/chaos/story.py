"""What a run has come through so far, noted by whoever does it: faults, wishes, and whom somebody else has killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from sim.chaos.kinds import fault_kind

if TYPE_CHECKING:
    from sim.chaos.losses import Loss
    from sim.planting import Planted


@attrs.define
class Wish:
    """What was asked for of one actor.

    Attributes:
        state: what the worker has promised last; None where nobody can know.
        under_way: how many requests are not answered yet.
        asked: how many there have been.
    """

    state: str | None = None
    under_way: int = 0
    asked: int = 0


@attrs.define
class Story:
    """The notes of one run.

    Attributes:
        planned: by kind of fault, how many were planned.
        fired: kinds of faults and when they happened, in order.
        wishes: by uid.
        killed: who has lost a sandbox to somebody else on the machine, since it was last told to run.
        planted: faults of ports, once they are taken out of the world.
        full_in: the last life of the supervisor that has met a full disk.
        losses: of GPUs, in order.
        cut_objects: the objects of stores that have lost their end.
        cold: who was asked to start cold, and so to forget the snapshots of an earlier life.
        is_over: whether the faults have stopped.
    """

    planned: dict[str, int] = attrs.field(factory=dict)
    fired: list[tuple[float, str]] = attrs.field(factory=list)
    wishes: dict[str, Wish] = attrs.field(factory=dict)
    killed: set[str] = attrs.field(factory=set)
    planted: list[Planted] = attrs.field(factory=list)
    full_in: int = 0
    losses: list[Loss] = attrs.field(factory=list)
    cut_objects: set[str] = attrs.field(factory=set)
    cold: set[str] = attrs.field(factory=set)
    is_over: bool = False

    def plan(self, kind: str) -> None:
        """One more of this kind is planned."""
        self.planned[kind] = self.planned.get(kind, 0) + 1

    def happened(self, kind: str, at_s: float) -> None:
        """One of this kind has happened."""
        self.fired.append((at_s, kind))

    def is_lost(self, loss: Loss) -> None:
        """A GPU is lost; of one that is so already, whoever came meanwhile has seen nothing."""
        if all(each.minor != loss.minor or each.until_s is not None for each in self.losses):
            self.losses.append(loss)

    def is_back(self, minor: int, at_s: float) -> None:
        """A GPU answers again, if it had not."""
        for each in self.losses:
            if each.minor == minor and each.until_s is None:
                each.until_s = at_s

    def wish(self, uid: str) -> Wish:
        """The wish of an actor."""
        return self.wishes.setdefault(uid, Wish())

    def fired_kinds(self) -> dict[str, int]:
        """How many of the planned ones have happened, by kind; of a port's fault, whether it met any call."""
        counts: dict[str, int] = {}
        for _, kind in self.fired:
            counts[kind] = counts.get(kind, 0) + 1
        for each in self.planted:
            if each.has_fired:
                kind = fault_kind(each.fault)
                counts[kind] = counts.get(kind, 0) + 1
        return counts
