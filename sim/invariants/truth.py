"""What is said of actors, against what is so."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from sim.invariants.evidence import activations_in, actors_in, sentry_of
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.evidence import ActorOnDisk
    from sim.invariants.violation import Finding
    from sim.world.world import World
    from statemachine.actor import Actor

_FOLLOWS: Final = frozenset({"adopted", "transition"})
"""What a supervisor logs under the generation that it follows."""


def status_tells_the_truth(world: World, record: Record) -> Iterator[Finding]:
    """Status, journal and supervisor say the same of an actor that rests; what a dead one said last may be lost."""
    living = world.worker.number
    told = {move.actor: move.after for move in record.moves if move.incarnation == living}
    for each in actors_in(world):
        if each.actor is None or each.state not in RESTING | FINAL:
            continue
        if each.uid in told and told[each.uid] != each.state:
            yield each.uid, f"its supervisor said {told[each.uid]}, its journal says {each.state}"
        if each.status is not None:
            yield from ((each.uid, what) for what in _differences(each, each.status, each.actor))


def _differences(each: ActorOnDisk, status: dict[str, Any], actor: Actor) -> Iterator[str]:
    pairs: dict[str, tuple[object, object]] = {
        "uid": (status.get("uid"), each.uid),
        "state": (status.get("state"), str(actor.state)),
        "containers": (
            [(found["name"], found["exitCode"]) for found in status.get("containers", ())],
            [(fate.name, fate.exit_code) for fate in actor.containers],
        ),
        "error": ((status.get("error") or {}).get("reason"), str(actor.problem.reason) if actor.problem else None),
        "lastGoodSnapshot": (
            (status.get("lastGoodSnapshot") or {}).get("id"),
            actor.last_good.id if actor.last_good else None,
        ),
    }
    if each.assignment is not None:
        pairs["generation"] = (status.get("generation"), each.assignment.generation)
        pairs["desiredState"] = (status.get("desiredState"), str(each.assignment.desired_state))
    for field, (said, true) in pairs.items():
        if said != true:
            yield f"status.json says {field} {said}, and it is {true}"


def frozen_is_not_running(world: World, _record: Record) -> Iterator[Finding]:
    """An actor that is called Running is not frozen, and its sandbox is not stopped."""
    states = {each.uid: each.state for each in actors_in(world)}
    for activation in activations_in(world):
        sentry = sentry_of(world, activation)
        if sentry is None or activation.record is None or states.get(activation.record.actor) is not State.RUNNING:
            continue
        if sentry.pauses:
            yield activation.record.actor, f"is Running, and frozen since {sentry.frozen_s:g} s"
        elif any(process.is_stopped for process in activation.processes):
            yield activation.record.actor, "is Running, and its sandbox is stopped"


def what_was_told_is_kept(world: World, record: Record) -> Iterator[Finding]:
    """Rest that a supervisor has told of outlives it: Suspended and Terminated stay so, and no generation goes back."""
    unwritten = {said.fields.get("actor") for said in record.log if said.event == "unwritten"}
    for uid in sorted({move.actor for move in record.moves} - unwritten):
        moves = [move for move in record.moves if move.actor == uid]
        for before, after in pairwise(moves):
            held = {State.SUSPENDED, State.TERMINATED} & {before.after}
            if before.incarnation != after.incarnation and held and after.before not in {before.after, "Assigned"}:
                yield uid, f"was {before.after}, and a later supervisor found it {after.before}"
        last = moves[-1]
        on_disk = next((each for each in actors_in(world) if each.uid == uid), None)
        if on_disk is None or on_disk.assignment is None:
            yield uid, f"was {last.after}, and has no assignment any more"
        elif last.after in {State.SUSPENDED, State.TERMINATED, State.FAILED} and on_disk.state != last.after:
            yield uid, f"was {last.after}, and its journal says {on_disk.state}"
    yield from _generations_that_fell(world, record)


def _generations_that_fell(world: World, record: Record) -> Iterator[Finding]:
    greatest: dict[str, int] = {}
    for said in record.log:
        uid, generation = said.fields.get("actor"), said.fields.get("generation")
        if said.event not in _FOLLOWS or not isinstance(uid, str) or not isinstance(generation, int):
            continue  # a step that began before an update is logged under the generation that it began with
        if generation < greatest.get(uid, 0):
            yield uid, f"followed generation {greatest[uid]}, and then {generation}"
            return
        greatest[uid] = generation
    for each in actors_in(world):
        if each.assignment is not None and each.assignment.generation < greatest.get(each.uid, 0):
            yield each.uid, f"followed generation {greatest[each.uid]}; on disk is {each.assignment.generation}"
