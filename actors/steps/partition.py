"""partition: each container has the GPUs that it claims, and no other one has them.

Needs the desk. Makes the grant. Undone by teardown, release and rollback, once the sandbox is ended. Fails with
InsufficientGpus, GpuLost, GpuNotDetected, MigUnsupported, NvmlUnavailable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.gpu.partition import Claim
from statemachine.actor import Resource
from statemachine.events import GpusPartitioned
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.assignment import WorkerAssignment
    from actors.gpu.inventory import Gpu
    from actors.gpu.partition import Grant
    from actors.steps.stage import Stage


async def partition_gpus(stage: Stage) -> GpusPartitioned:
    """Perform PartitionGpus."""
    grants = await stage.gpus.grant(stage.assignment.uid, claims_by_container(stage.assignment))
    known = _by_uuid(stage)
    if any(uuid not in known for grant in grants for uuid in grant.gpus):
        # One came back, or was put in, since detect looked.
        stage.inventory = await stage.gpus.inventory()
        known = _by_uuid(stage)
    stage.granted = {grant.container: _gpus(grant, known) for grant in grants}
    return GpusPartitioned()


def give_back(stage: Stage, undo: Collection[Resource]) -> None:
    """Undo the grant, when it is to be undone. Never before the sandbox that could use its GPUs has ended."""
    if Resource.GRANT in undo:
        stage.gpus.give_back(stage.assignment.uid)
        stage.granted = {}


def claims_by_container(assignment: WorkerAssignment) -> tuple[Claim, ...]:
    """What each container claims, in the order of declaration."""
    return tuple(Claim(each.name, each.gpus) for each in assignment.containers)


def _by_uuid(stage: Stage) -> dict[str, Gpu]:
    return {} if stage.inventory is None else {gpu.uuid: gpu for gpu in stage.inventory.gpus}


def _gpus(grant: Grant, known: dict[str, Gpu]) -> tuple[Gpu, ...]:
    absent = [uuid for uuid in grant.gpus if uuid not in known]
    if absent:
        message = f"{absent[0]}, which {grant.container} was granted, is no longer seen"
        raise ProblemError(Problem(step=Step.PARTITION, reason=Reason.GPU_LOST, subject=absent[0], message=message))
    return tuple(known[uuid] for uuid in grant.gpus)
