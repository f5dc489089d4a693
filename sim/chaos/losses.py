"""GPUs that are lost: whoever holds one is told, and nobody new is given it before it has been well for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.gpu.quarantine import WELL_S
from sim.chaos.gpu_checks import minors_of
from sim.invariants.evidence import containers_in
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sim.invariants.violation import Finding
    from sim.world.given import Given
    from sim.world.world import World

NOTICED_S: Final = 5.0
"""After so long a worker whose monitor is well knows that a GPU is lost."""
_LIVE: Final = frozenset({State.RUNNING, State.SUSPENDING, State.THAWING})
"""Where an actor keeps its sandbox, and so its GPUs."""


@attrs.define(kw_only=True)
class Loss:
    """What is known of the loss of a GPU.

    Attributes:
        minor: which.
        at_s: when it was lost.
        incarnation: the life of the supervisor that saw it go.
        holders: the actors that had it.
        until_s: when it was back; None while it is not.
    """

    minor: int
    at_s: float
    incarnation: int
    holders: frozenset[str] = frozenset()
    until_s: float | None = None

    def is_known_to(self, incarnation: int) -> bool:
        """Whether a life of the supervisor can know of it: it has seen it, or sees it still."""
        return self.until_s is None or incarnation == self.incarnation


def loss_of(world: World, minor: int, at_s: float) -> Loss:
    """The loss of a GPU that happens now."""
    holders = frozenset(
        actor for actor, _, found in containers_in(world) if found is not None and minor in minors_of(found.spec)
    )
    return Loss(minor=minor, at_s=at_s, incarnation=world.worker.number, holders=holders)


def granted_ill(losses: Iterable[Loss], documents: Iterable[Given], now_s: float) -> Iterator[Finding]:
    """Nobody new is given a GPU that is lost, or that was so a moment ago."""
    ill = {
        each.minor: each
        for each in losses
        if each.at_s + NOTICED_S < now_s < (now_s if each.until_s is None else each.until_s) + WELL_S
    }
    for document in documents:
        for minor in minors_of(document.config):
            if minor in ill:
                whose = f"{document.container} of {document.actor}"
                yield whose, f"is given /dev/nvidia{minor}, which was lost at {ill[minor].at_s:.3f} s"


def untold(world: World, losses: Iterable[Loss], now_s: float) -> Iterator[Finding]:
    """Who has had a GPU that was lost has not run on with it."""
    for each in losses:
        if now_s <= each.at_s + NOTICED_S:
            continue
        for uid in sorted(each.holders):
            since = [move for move in world.hearing.moves if move.actor == uid and move.at_s >= each.at_s]
            if world.hearing.states.get(uid) in _LIVE and all(State(move.after) in _LIVE for move in since):
                yield uid, f"runs on with /dev/nvidia{each.minor}, which was lost at {each.at_s:.3f} s"
