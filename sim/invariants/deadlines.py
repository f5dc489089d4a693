"""No state that does not rest lasts longer than it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.invariants.evidence import actor_on_disk
from statemachine.actor import BACKOFF_MAX_S
from statemachine.states import DEADLINE_S, State
from supervisor.step_runner import CLEANUP_DEADLINE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.hearing import Moved
    from sim.invariants.violation import Finding
    from sim.world.world import World

MARGIN_S: Final = 1.0
"""What is written between the deadline and the next transition."""


def deadlines_are_kept(world: World, record: Record) -> Iterator[Finding]:
    """From its beginning to the next transition a state lasts at most its deadline and the cleanup of what it cut off.

    What a dead supervisor left is nobody's lateness: its last state does not count.
    """
    last_life = world.incarnations[-1].number if world.incarnations else 0
    for uid in sorted({move.actor for move in record.moves}):
        moves = [move for move in record.moves if move.actor == uid]
        for move, following in zip(moves, [*moves[1:], None], strict=True):
            if following is None and (move.incarnation != last_life or not world.worker.lives):
                continue
            if following is not None and following.incarnation != move.incarnation:
                continue
            lasted_s = (record.virtual_s if following is None else following.at_s) - move.at_s
            limit_s = _limit_s(world, move)
            if limit_s is not None and lasted_s > limit_s:
                yield uid, f"was {move.after} for {lasted_s:g} s; it may be for {limit_s:g} s"


def _limit_s(world: World, move: Moved) -> float | None:
    state = State(move.after)
    if state not in DEADLINE_S:
        return None
    assignment = actor_on_disk(world, move.actor).assignment
    grace_s = float(assignment.termination_grace_s) if assignment is not None else 0.0
    probes = [each.wakeup_probe for each in assignment.containers] if assignment is not None else []
    extra_s = {
        State.STOPPING: grace_s,
        State.VERIFYING: max((probe.timeout_s for probe in probes if probe is not None), default=0.0),
        State.BACKING_OFF: BACKOFF_MAX_S,
    }
    return DEADLINE_S[state] + extra_s.get(state, 0.0) + CLEANUP_DEADLINE_S + MARGIN_S
