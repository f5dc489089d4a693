"""What a worker is given of an actor: its WorkerAssignment, with a program that ends when the trace says so."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from sim.documents import IDLE, actor, container

if TYPE_CHECKING:
    from sim.fleet.config import FleetConfig
    from sim.traces.records import Assignment

GPU_RESOURCE: Final = "nvidia.com/gpu"
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def uid_of(name: str) -> str:
    """The uid that an actor of a trace has on its workers: its name where that can be one, else one made of it."""
    if _UID.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
    return f"{re.sub('[^A-Za-z0-9-]', '-', name)[:48]}-{digest}"


def document_of(
    assignment: Assignment, config: FleetConfig, *, generation: int, snapshot_uri: str | None
) -> dict[str, Any]:
    """The assignment as a worker takes it.

    Args:
        assignment: of the trace.
        config: the fleet's.
        generation: one that the worker has not seen of this actor.
        snapshot_uri: what it goes on from; None begins with nothing.
    """
    more: dict[str, Any] = {} if snapshot_uri is None else {"snapshot": {"uri": snapshot_uri}}
    return actor(
        uid_of(assignment.actor),
        *(
            container(
                each.name if _LABEL.fullmatch(each.name) and each.name != "pause" else f"c{index}",
                _command(assignment.for_s),
                **_limits(each.gpus),
            )
            for index, each in enumerate(assignment.containers)
        ),
        generation=generation,
        restartPolicy=config.actors.restart,
        terminationGracePeriodSeconds=round(config.actors.grace_s),
        **more,
    )


def _command(for_s: float | None) -> tuple[str, ...]:
    return IDLE if for_s is None else ("sh", "-c", f"sleep {for_s!r}; exit 0")


def _limits(gpus: int) -> dict[str, Any]:
    return {"resources": {"limits": {GPU_RESOURCE: gpus}}} if gpus else {}
