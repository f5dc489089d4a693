"""Coverage: which state has met which event while which kind of fault was fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.chaos.kinds import fault_kind

if TYPE_CHECKING:
    from sim.chaos.story import Story
    from sim.world.world import World

FRESH_S: Final = 10.0
"""For so many virtual seconds after a fault whatever happens is said to have met it."""
NOTHING: Final = "none"
"""The kind when no fault is fresh."""
_TOLD: Final = frozenset({"ignored", "refused"})


def cells_of(world: World, story: Story) -> dict[str, int]:
    """Count the cells of a run: `state event kind`."""
    faults = [*story.fired]
    for each in story.planted:
        kind = fault_kind(each.fault)
        faults += [(world.ledger.calls[number - 1].at_s, kind) for number in each.fired]
    faults.sort()
    cells: dict[str, int] = {}
    for at_s, state, event in sorted(_met(world)):
        kinds = {kind for fired_s, kind in faults if fired_s <= at_s <= fired_s + FRESH_S} or {NOTHING}
        for kind in kinds:
            cell = f"{state} {event} {kind}"
            cells[cell] = cells.get(cell, 0) + 1
    return dict(sorted(cells.items()))


def _met(world: World) -> list[tuple[float, str, str]]:
    met = [(move.at_s, move.before, move.event) for move in world.hearing.moves if move.event is not None]
    for said in world.hearing.said:
        if said.event in _TOLD and "event_type" in said.fields:
            state = said.fields.get("state") or "any"
            met.append((said.at_s, str(state), said.fields["event_type"]))
    return met
