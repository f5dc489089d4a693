"""The promise of suspend and resume: at every instant an actor runs, or has a snapshot that is known to restore.

Or it has ended with a named reason, and its last good snapshot is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.invariants.evidence import actors_in, snapshots_of
from sim.invariants.snapshots import faults_of
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World

RUNS: Final = frozenset({State.RUNNING, State.SUSPENDING, State.THAWING})
"""Where its sandbox is all that there may be of an actor."""
SAVED: Final = frozenset({State.RELEASING, State.SUSPENDED})
"""Where it has been told that a snapshot is proven, or stands."""


def lost_now(world: World, uid: str, *, was_saved: bool) -> str | None:
    """Look at one actor between two port calls; says what is lost of it.

    Args:
        world: as it is.
        uid: whose.
        was_saved: whether a snapshot of it was ever proven.
    """
    state = world.hearing.states.get(uid)
    if state is None:
        return None
    has_sandbox, has_snapshot = bool(world.sandboxes_of(uid)), _has_whole(world, uid)
    if was_saved and not has_snapshot:
        return f"is {state}; a snapshot of it was proven, and none is whole any more"
    if state in RUNS and not has_sandbox and not has_snapshot:
        return f"is {state}, and has neither a sandbox nor a snapshot that is whole"
    if state in SAVED and not has_snapshot:
        return f"is {state}, and has no snapshot that is whole"
    return None


def _has_whole(world: World, uid: str) -> bool:
    return any(
        snapshot.manifest is not None and not any(faults_of(world, snapshot)) for snapshot in snapshots_of(world, uid)
    )


def failures_say_why(world: World, _record: Record) -> Iterator[Finding]:
    """Who has failed says why, by a reason that is not a fault of ours."""
    for each in actors_in(world):
        if each.actor is None or each.state is not State.FAILED:
            continue
        problem = each.actor.problem
        if problem is None:
            yield each.uid, "has failed, and says nothing of why"
        elif problem.reason is Reason.INTERNAL:
            yield each.uid, f"has failed by a fault of ours: {problem.message}"


def nobody_is_lost(world: World, _record: Record) -> Iterator[Finding]:
    """Who has failed names the newest snapshot that is whole."""
    for each in actors_in(world):
        if each.actor is None or each.state is not State.FAILED:
            continue
        if each.actor.last_good is None and _has_whole(world, each.uid):
            yield each.uid, "has failed, and does not name the snapshot that it has"
