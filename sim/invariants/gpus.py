"""GPUs: each container has exactly those that it was granted, whatever happened on the way; and no two have one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sim.invariants.evidence import actors_in, containers_in
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.engine import Record
    from sim.invariants.evidence import ActorOnDisk
    from sim.invariants.violation import Finding
    from sim.world.given import Given
    from sim.world.world import World

CONTROL: Final = frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"})
NEEDED: Final = frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm"})
"""Without these nobody reaches a GPU."""
MAJOR: Final = 195
_GPU: Final = "/dev/nvidia"
_OF_A_GPU: Final = re.compile(rf"{_GPU}\d+", re.ASCII)
_OURS: Final = "/run/greenroom/"


def gpus_are_exact(world: World, _record: Record) -> Iterator[Finding]:
    """Nobody who claims GPUs is ever started with fewer or more, and nobody who claims none is started with any.

    That is so of every config.json that any runsc has read since the machine booted.
    """
    claims = {each.uid: _claims(each) for each in actors_in(world)}
    for document in world.execution.given:
        if document.actor in claims:
            where = f"{document.container} of {document.actor}"
            claimed = claims[document.actor].get(document.container, 0)
            yield from ((where, what) for what in _wrong(document, claimed))


def gpus_have_one_holder(world: World, _record: Record) -> Iterator[Finding]:
    """No two containers that live have one GPU's node; what is told of holders is what they have."""
    holders: dict[str, str] = {}
    found: dict[str, dict[str, set[str]]] = {}
    for actor, name, container in containers_in(world):
        nodes = _gpus_in(container.spec) if container is not None else set()
        found.setdefault(actor, {})[name] = nodes
        for node in sorted(nodes):
            whose = f"{name} of {actor}"
            if node in holders:
                yield node, f"is in {holders[node]} and in {whose}"
            holders[node] = whose
    for each in actors_in(world):
        if each.state in RESTING | FINAL and each.status is not None:
            yield from ((each.uid, what) for what in _untrue(world, each, found.get(each.uid, {})))


def _claims(each: ActorOnDisk) -> dict[str, int]:
    return {} if each.assignment is None else {found.name: found.gpus for found in each.assignment.containers}


def _wrong(document: Given, claimed: int) -> Iterator[str]:
    devices = _devices(document.config)
    gpus = _gpus_in(document.config)
    if len(gpus) != claimed:
        yield f"claims {claimed}, and runsc was given {sorted(gpus) or 'none'}"
    if not claimed:
        if any(path.startswith(_GPU) for path in devices):
            yield f"claims nothing, and runsc was given {sorted(devices)}"
        if any(each["destination"].startswith(_OURS) for each in document.config.get("mounts") or ()):
            yield "claims nothing, and has mounts that come with a GPU"
        return
    others = {path for path in devices if path.startswith(_GPU)} - gpus  # graphics nodes come with a GPU
    if not NEEDED <= others <= CONTROL:
        yield f"has {sorted(others)} beside its GPUs"
    count = len((document.config.get("linux") or {}).get("devices") or ())
    if count != len(devices):
        yield f"has {count} nodes of {len(devices)} paths"
    for path, device in devices.items():
        numbers = (device.get("major"), device.get("minor"))
        if device.get("type") != "c" or (path in gpus and numbers != (MAJOR, int(path.removeprefix(_GPU)))):
            yield f"{path} is {device.get('type')} {numbers}"


def _untrue(world: World, each: ActorOnDisk, found: Mapping[str, set[str]]) -> Iterator[str]:
    """What its status says of its containers' GPUs, and what its sandbox has."""
    paths = {gpu.uuid: f"{_GPU}{gpu.minor}" for gpu in world.machine.gpus}
    for told in (each.status or {}).get("containers", ()):
        said = {paths.get(uuid, uuid) for uuid in told.get("gpus", ())}
        if each.state is not State.RUNNING:
            if said:
                yield f"is {each.state}, and its status says that {told['name']} holds {sorted(said)}"
        elif told["exitCode"] is not None:
            continue  # it keeps its place in the grant; of it runsc may know nothing any more
        elif told["name"] in found and said != found[told["name"]]:
            yield f"{told['name']} has {sorted(found[told['name']])}, and its status says {sorted(said)}"


def _devices(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {device["path"]: device for device in (config.get("linux") or {}).get("devices") or ()}


def _gpus_in(config: Mapping[str, Any]) -> set[str]:
    return {path for path in _devices(config) if _OF_A_GPU.fullmatch(path)}
