"""What stands when there is no supervisor, and must be gone on with by the next one: sandboxes of Running actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.invariants.evidence import activations_in, actors_in, sentry_of
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.world.world import World


def standing_in(world: World) -> dict[str, str]:
    """The activation of each actor that is Running as its journal tells, by uid, where its sandbox lives."""
    running = {each.uid for each in actors_in(world) if each.state is State.RUNNING}
    found: dict[str, str] = {}
    for activation in activations_in(world):
        record = activation.record
        if sentry_of(world, activation) is not None and record is not None and record.actor in running:
            found[record.actor] = activation.name
    return found


def not_gone_on_with(world: World, standing: Mapping[str, str]) -> Iterator[str]:
    """Of what stood when the newest supervisor was started: what it has not gone on with."""
    number = world.worker.number
    for uid, activation in standing.items():
        moves = [move for move in world.hearing.moves if move.incarnation == number and move.actor == uid]
        if not moves or (moves[0].before, moves[0].after) != (State.RUNNING, State.RUNNING):
            went = f"was taken from {moves[0].before} to {moves[0].after}" if moves else "was not heard of again"
            yield f"actor {uid} was Running in a sandbox that lived, and {went}"
        elif len(moves) == 1 and activation not in {each.name for each in activations_in(world)}:
            yield f"actor {uid} is Running, and no longer in activation {activation}"
