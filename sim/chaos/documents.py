"""The documents of a plan's actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.chaos.plan import COMMANDS
from sim.documents import actor, container

if TYPE_CHECKING:
    from sim.chaos.plan import PlannedActor, PlannedContainer

STORE = "s3://bucket/snapshots"
_VOLUME = "work"


def document_of(planned: PlannedActor, *, generation: int, state: str, cold: bool = False) -> dict[str, Any]:
    """A document of an actor: all of them differ in nothing but what may differ while it lives."""
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": planned.grace_s}
    if planned.restarts:
        spec["restartPolicy"] = "OnFailure"
    if planned.is_stored:
        spec["suspend"] = {"uri": STORE}
    if planned.is_durable:
        spec["durableVolumes"] = [{"name": _VOLUME}]
        spec["lifecycle"] = {"preSuspend": {"exec": ["true"]}, "postResume": {"exec": ["true"]}}
    if cold:
        spec["snapshot"] = {"from": "None"}
    containers = [_container(planned, place, each) for place, each in enumerate(planned.containers)]
    return actor(planned.uid, *containers, generation=generation, state=state, **spec)


def _container(planned: PlannedActor, place: int, each: PlannedContainer) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if each.gpus:
        more["resources"] = {"limits": {"nvidia.com/gpu": each.gpus}}
    if planned.is_durable and not place:
        more["volumeMounts"] = [{"name": _VOLUME, "mountPath": "/data"}]
    return container(f"c{place}", COMMANDS[each.program], **more)
