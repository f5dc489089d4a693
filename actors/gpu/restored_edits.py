"""The plan of a container that is to be restored: what the snapshot says it had, from where it is today.

A restore compares the container with the one in the snapshot: mounts by destination, type and options, device nodes but
for the GPUs' own by path, and the user's groups. Another toolkit or another host would give others. So the snapshot's
are taken, each with the source that today's spec has for it: what the spec has more is left out, and what it lacks is
the reason to refuse before anything is created.

Source: DESIGN, rule 9; facts of CDI, section 10, "restore".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.cdi import Mount
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .granted_edits import GPU_NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.cdi import DeviceNode
    from actors.manifest import Shape

    from .injection_plan import InjectionPlan


def as_at_snapshot(plan: InjectionPlan, then: Shape, *, without_gpus: Shape) -> InjectionPlan:
    """The plan with which the container has the shape that it had.

    Args:
        plan: as for a cold start, from today's spec.
        then: the container's shape in the manifest.
        without_gpus: the shape of today's config.json before any device.

    Raises:
        ProblemError: MountMissing, for each mount and each device node that today's plan has not; of the step restore.
    """
    mounts = {mount.container_path: mount for mount in plan.edits.mounts}
    nodes = {node.path: node for node in plan.edits.device_nodes}
    kept = {device.path for device in then.devices if not GPU_NODE.fullmatch(device.path)}
    given = {mount.destination for mount in without_gpus.mounts} | {device.path for device in without_gpus.devices}
    wanted = [mount for mount in then.mounts if mount.destination in mounts]
    problems = [
        *(
            _missing(plan, "mount at", path)
            for path in (each.destination for each in then.mounts)
            if path not in mounts
        ),
        *(_missing(plan, "device node", path) for path in sorted(kept) if path not in nodes),
    ]
    # What the container has without any device is not the spec's to give; whether it still has it, others look.
    problems = [problem for problem in problems if problem.subject not in given]
    if problems:
        raise ProblemError(*problems)
    edits = attrs.evolve(
        plan.edits,
        mounts=tuple(
            Mount(
                host_path=mounts[each.destination].host_path,
                container_path=each.destination,
                options=each.options,
                type=each.type,
            )
            for each in wanted
        ),
        device_nodes=tuple(node for node in plan.edits.device_nodes if _stays(node, kept)),
        additional_gids=tuple(gid for gid in then.user.additional_gids if gid not in without_gpus.user.additional_gids),
    )
    extra = sorted({mount.destination for mount in wanted} ^ set(mounts))
    left_out = [*extra, *(path for path in nodes if not _stays(nodes[path], kept))]
    return attrs.evolve(plan, edits=edits, warnings=(*plan.warnings, *_told(left_out)))


def _stays(node: DeviceNode, kept: set[str]) -> bool:
    return bool(GPU_NODE.fullmatch(node.path)) or node.path in kept


def _told(left_out: list[str]) -> Iterator[str]:
    return (f"{path} is left out: the snapshot was taken without it" for path in left_out)


def _missing(plan: InjectionPlan, what: str, path: str) -> Problem:
    message = f"{plan.container} had a {what} {path}, which today's CDI spec does not give"
    return Problem(step=Step.RESTORE, reason=Reason.MOUNT_MISSING, subject=path, message=message)
