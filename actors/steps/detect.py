"""detect: the pod's GPUs are known, and are enough for what the actor claims.

Needs the desk. Makes nothing. Fails with GpuNotDetected, NvmlUnavailable, CdiModeRequired, and with InsufficientGpus or
MigUnsupported when even an actor that was alone here could not have what this one claims. Who holds what is for
partition to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.gpu.partition import Pool, admit
from actors.steps.partition import claims_by_container
from statemachine.events import GpusDetected
from statemachine.problem import ProblemError, Step

if TYPE_CHECKING:
    from actors.steps.stage import Stage


async def detect_gpus(stage: Stage) -> GpusDetected:
    """Perform DetectGpus."""
    uid = stage.assignment.uid
    stage.inventory = await stage.gpus.inventory()
    # What it kept over a backoff is its own; that one of those is lost is a reason of its own, too.
    if not stage.gpus.grants(uid):
        try:
            admit(Pool(), stage.inventory, uid, claims_by_container(stage.assignment))
        except ProblemError as error:
            raise ProblemError(*(attrs.evolve(each, step=Step.DETECT) for each in error.problems)) from error
    return GpusDetected()
