"""Assignments for the simulated machine, short enough for a line of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.world.world import ROOTFS

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT: tuple[str, ...] = ("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done")
"""Writes 0, 1, 2, … ten times a second, until it is ended."""
IDLE: tuple[str, ...] = ("sleep", "infinity")


def actor(
    uid: str = "a1",
    *containers: dict[str, Any],
    generation: int = 1,
    state: str = "Running",
    **spec: Any,
) -> dict[str, Any]:
    """An assignment; `spec` takes further fields by their own names."""
    return {
        "apiVersion": "greenroom.dev/v1alpha1",
        "kind": "WorkerAssignment",
        "metadata": {"uid": uid, "generation": generation},
        "spec": {"desiredState": state, "containers": list(containers or (container(),)), **spec},
    }


def container(name: str = "main", command: Sequence[str] = COUNT, **more: Any) -> dict[str, Any]:
    """A container on the machine's root file system."""
    return {"name": name, "rootfs": str(ROOTFS), "command": list(command), **more}


def counter(uid: str = "a1", *, generation: int = 1, state: str = "Running", **spec: Any) -> dict[str, Any]:
    """An actor of one container that counts."""
    return actor(uid, container(), generation=generation, state=state, **spec)


def durable(uid: str = "a1", *, generation: int = 1, state: str = "Running", **spec: Any) -> dict[str, Any]:
    """An actor that counts beside a durable volume, and has hooks that do nothing."""
    return actor(
        uid,
        container(volumeMounts=[{"name": "work", "mountPath": "/data"}]),
        generation=generation,
        state=state,
        durableVolumes=[{"name": "work"}],
        lifecycle={"preSuspend": {"exec": ["true"]}, "postResume": {"exec": ["true"]}},
        **spec,
    )


def idler(uid: str = "a1", *, generation: int = 1, state: str = "Running", **spec: Any) -> dict[str, Any]:
    """An actor of one container that does nothing, at no cost."""
    return actor(uid, container(command=IDLE), generation=generation, state=state, **spec)
