"""Grants of GPUs over a whole run: one holder at every instant, ascending, the same ordinals after a resume."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors.gpu.identity_file import IDENTITY_PATH, IdentityError, decode
from sim.invariants.evidence import activations_in, actors_in, bytes_at, containers_in, snapshots_of
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.gpu.identity_file import IdentityFile
    from sim.engine import Record
    from sim.invariants.evidence import Activation
    from sim.invariants.violation import Finding
    from sim.world.world import World

_NODE: Final = re.compile(r"/dev/nvidia(\d+)", re.ASCII)
_HOLDING: Final = frozenset({"Suspended", "Failed", "Terminated"})


def minors_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The minors of the GPUs in a config.json, as they stand there."""
    devices = (config.get("linux") or {}).get("devices") or ()
    found = (_NODE.fullmatch(each["path"]) for each in devices)
    return tuple(int(match[1]) for match in found if match is not None)


def one_holder_now(world: World) -> Iterator[Finding]:
    """No two containers that live have one GPU's node; looked at between two calls, whatever is under way."""
    holders: dict[int, str] = {}
    for actor, name, container in containers_in(world):
        for minor in minors_of(container.spec) if container is not None else ():
            whose = f"{name} of {actor}"
            if minor in holders and holders[minor] != whose:
                yield f"/dev/nvidia{minor}", f"is in {holders[minor]} and in {whose}"
            holders[minor] = whose


def grants_ascend(world: World, _record: Record) -> Iterator[Finding]:
    """The GPUs of an activation ascend through its containers, as they are declared: so ordinals are what they were."""
    order = {each.uid: _names(each.assignment) for each in actors_in(world)}
    grants: dict[tuple[str, str], dict[str, tuple[int, ...]]] = {}
    for document in world.execution.given:
        if document.actor in order:
            key = document.actor, document.activation.name
            grants.setdefault(key, {})[document.container] = tuple(sorted(minors_of(document.config)))
    for (actor, activation), by_container in grants.items():
        dealt = [minor for name in order[actor] for minor in by_container.get(name, ())]
        if any(after <= before for before, after in pairwise(dealt)):
            yield actor, f"activation {activation} has the GPUs {dealt}, which do not ascend"


def _names(assignment: Any) -> list[str]:
    return [] if assignment is None else [each.name for each in assignment.containers]


def ordinals_are_kept(world: World, _record: Record) -> Iterator[Finding]:
    """What a snapshot says of GPUs is what its actor had, by ordinals; what is told after a resume is what it says."""
    had: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for document in world.execution.given:
        if document.actor is not None:
            key = document.actor, document.container
            had.setdefault(key, set()).add(tuple(sorted(minors_of(document.config))))
    saved: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for each in actors_in(world):
        for snapshot in snapshots_of(world, each.uid):
            for entry in snapshot.manifest.containers if snapshot.manifest is not None else ():
                key = each.uid, entry.name
                saved.setdefault(key, set()).add(tuple(gpu.uuid for gpu in entry.gpus))
                minors = tuple(gpu.minor for gpu in entry.gpus)
                is_of_this_boot = snapshot.manifest is not None and snapshot.manifest.boot_id == world.wall.boot_id()
                if minors and is_of_this_boot and minors not in had.get(key, {minors}):
                    yield each.uid, f"snapshot {snapshot.directory.name} says that {entry.name} had the GPUs {minors}"
    running = {each.uid for each in actors_in(world) if each.state is State.RUNNING}
    for activation in activations_in(world):
        if activation.record is not None and activation.record.actor in running:
            for told in _told(world, activation):
                key = activation.record.actor, told.container
                then = tuple(each.at_snapshot.uuid for each in told.gpus if each.at_snapshot is not None)
                if then and then not in saved.get(key, {then}):
                    yield (
                        activation.record.actor,
                        f"{told.container} is told that it had {then}, and no snapshot says so",
                    )


def _told(world: World, activation: Activation) -> Iterator[IdentityFile]:
    """Every gpus.json of an activation."""
    seen: set[Path] = set()
    for document in world.execution.given:
        if document.activation.name != activation.name:
            continue
        for mount in document.config.get("mounts") or ():
            path = Path(mount.get("source") or "/")
            if mount.get("destination") != IDENTITY_PATH or path in seen:
                continue
            seen.add(path)
            data = bytes_at(world, path)
            try:
                if data is not None:
                    yield decode(data)
            except IdentityError:
                continue  # what cannot be read is found by who reads it


def capacity_is_given_back(status: dict[str, Any]) -> Iterator[Finding]:
    """Who rests without a sandbox holds no GPU, as the worker itself tells."""
    states = {each["uid"]: each["state"] for each in status["actors"]}
    for gpu in status["worker"]["gpus"]:
        holder = gpu["holder"]
        if holder is not None and states.get(holder["uid"], "unknown") in {*_HOLDING, "unknown"}:
            yield holder["uid"], f"is {states.get(holder['uid'], 'unknown')}, and holds {gpu['path']}"
