"""Who runs when no supervisor does: the next one goes on with him, whatever has ended the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.invariants.standing import not_gone_on_with, standing_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.chaos.story import Story
    from sim.invariants.violation import Finding
    from sim.world.world import World


class Standing:
    """What stood when the newest supervisor was started.

    Args:
        world: where.
        story: what has happened.
    """

    def __init__(self, world: World, story: Story) -> None:
        self._world, self._story = world, story
        self._number = 0
        self._activations: dict[str, str] = {}

    def note(self) -> None:
        """Another supervisor is about to be started."""
        self._number, self._activations = self._world.worker.number + 1, standing_in(self._world)

    def findings(self) -> Iterator[Finding]:
        """Who has not been gone on with, though no fault has met the start and nobody else has killed him."""
        if self._world.worker.number != self._number:
            return
        for uid, activation in self._activations.items():
            if uid not in self._story.killed and not self._was_met(uid):
                yield from ((uid, what) for what in not_gone_on_with(self._world, {uid: activation}))

    def _was_met(self, uid: str) -> bool:
        """Whether a fault has met the newest supervisor before it had told of this actor."""
        moves = self._world.hearing.moves
        told_s = next((move.at_s for move in moves if move.incarnation == self._number and move.actor == uid), None)
        met = [
            self._world.ledger.calls[number - 1]
            for each in (*self._story.planted, *self._world.plan.planted)
            for number in each.fired
        ]
        return any(call.incarnation == self._number and (told_s is None or call.at_s <= told_s) for call in met)
