"""What an actor that rests may still hold: a Running one exactly one sandbox, every other one nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.invariants.evidence import Activation, activations_in, actors_in, sentry_of, snapshots_of
from sim.world.incarnation import Incarnation
from sim.world.runsc.contained import RUNNING
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World

EMPTY_HANDED: Final = (RESTING | FINAL) - {State.RUNNING}


def nothing_is_left(world: World, _record: Record) -> Iterator[Finding]:
    """Of an actor that is Suspended, Failed or Terminated there is no process, activation directory or runsc record.

    Nor is there an activation that belongs to no actor, an unproven snapshot, a lock of somebody who has ended, or a
    command that one who has ended left in the sandbox of a Running one.
    """
    states = {each.uid: each.state for each in actors_in(world)}
    for activation in activations_in(world):
        owner = activation.record.actor if activation.record is not None else None
        state = states.get(owner) if owner is not None else None
        if owner is None and any(each not in RESTING | FINAL for each in states.values()):
            continue  # being made: its record is not written yet
        if state is None or state in EMPTY_HANDED:
            whose = f"actor {owner}, which is {state}" if owner is not None else "nobody"
            yield activation.name, f"{_parts(activation)} left of {whose}"
        elif state is State.RUNNING:
            yield from ((activation.name, what) for what in _strangers(world, activation))
    for uid, state in states.items():
        for snapshot in snapshots_of(world, uid) if state in RESTING | FINAL else ():
            if snapshot.manifest is None and snapshot.fault is None:
                yield uid, f"{snapshot.directory} has no manifest, and the actor is {state}"
    for lock in world.disk.locks.held:
        if isinstance(lock.owner, Incarnation) and not lock.owner.lives:
            yield lock.node.name, f"is locked by life {lock.owner.number} of the supervisor, which has ended"


def _strangers(world: World, activation: Activation) -> Iterator[str]:
    """Commands of a supervisor that has ended, which nobody waits for."""
    record = activation.record
    if record is None or not world.worker.lives:
        return
    ours = {record.sandbox, *record.gofers.values()}
    for process in activation.processes:
        if process.identity not in ours and process.parent != world.worker.pid:
            yield f"process {process.pid} ({' '.join(process.arguments)}) belongs to nobody"


def one_sandbox(world: World, _record: Record) -> Iterator[Finding]:
    """A Running actor has exactly one sandbox, in which its containers are; nobody ever has two."""
    owned: dict[str, list[Activation]] = {}
    for activation in activations_in(world):
        if activation.record is not None:
            owned.setdefault(activation.record.actor, []).append(activation)
    for each in actors_in(world):
        sandboxes = [found for found in owned.get(each.uid, ()) if sentry_of(world, found) is not None]
        if len(sandboxes) > 1:
            yield each.uid, f"has {len(sandboxes)} sandboxes: {', '.join(found.name for found in sandboxes)}"
        if each.actor is None or each.state is not State.RUNNING:
            continue
        if not sandboxes:
            yield each.uid, "is Running, and has no sandbox"
            continue
        yield from ((each.uid, what) for what in _missing(world, sandboxes[0], each.actor.live))


def _missing(world: World, activation: Activation, names: tuple[str, ...]) -> Iterator[str]:
    sentry, record = sentry_of(world, activation), activation.record
    if sentry is None or record is None:
        return
    for name in names:
        container = sentry.containers.get(record.container_ids.get(name, ""))
        if container is None:
            yield f"is Running, and container {name} is not in its sandbox"
        elif container.state != RUNNING:
            yield f"is Running, and container {name} is {container.state} in its sandbox"


def _parts(activation: Activation) -> str:
    count = len(activation.processes)
    parts = [f"{count} {'process' if count == 1 else 'processes'}"] if count else []
    parts += ["its directory"] if activation.is_directory else []
    return " and ".join(parts)
