"""What is wanted of an actor: a generation that was written down is acted on, also when a restart came between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.assignment import DesiredState
from sim.invariants.evidence import actors_in
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World


def wishes_are_followed(world: World, record: Record) -> Iterator[Finding]:
    """The journal of an actor at rest says that the generation on the disk was acted on, or a start says why not."""
    number = world.worker.number
    unusable = {
        said.fields.get("subject") for said in record.log if said.event == "unusable" and said.incarnation == number
    }
    for each in actors_in(world):
        if each.assignment is None or each.replayed is None or each.uid in unusable:
            continue
        followed, written = each.replayed.generation, each.assignment.generation
        is_so = each.assignment.desired_state is DesiredState.TERMINATED and each.state is State.TERMINATED
        if 0 < followed < written and not is_so:
            yield each.uid, f"generation {written} is on the disk, and {followed} was the last to be acted on"
