"""Who holds a GPU is told what befalls it: its loss, which is the end of the actor, and XIDs, with which it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import structlog

from actors.gpu.partition import lost_grants
from actors.gpu.view import NvmlAnswers
from actors.gpu.xids import XidPolicy, class_of
from statemachine.events import GpuLost
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.gpu.inventory import Inventory
    from actors.gpu.partition import Loss, Pool
    from supervisor.gpu_sources import Watch

XIDS_AGAIN_S: Final = 1.0
"""How long nobody is told anything after each XID that a holder was told of; what comes meanwhile is told together.

Each is a line of the log and a new status file: so those of a flood are one a second, whatever the XIDs are."""

_log = structlog.get_logger("greenroom.gpus")


class GpuTelling:
    """Of one worker's GPUs.

    Args:
        watch: NVML's word, as it comes.
        pool: who holds what now.
        known: the GPUs as they were seen last.
    """

    def __init__(self, watch: Watch, *, pool: Callable[[], Pool], known: Callable[[], Inventory | None]) -> None:
        self._watch, self._pool, self._known = watch, pool, known
        self._told: set[tuple[str, str]] = set()
        watch.xids.holder_of = lambda gpu: pool().holder_of(gpu)

    def forget(self, uid: str) -> None:
        """An actor holds nothing any more."""
        self._told = {(actor, gpu) for actor, gpu in self._told if actor != uid}

    async def losses(self, tell: Callable[[str, GpuLost], Awaitable[None]]) -> None:
        """Tell each actor of each GPU that it holds and that is lost, once, until this is cancelled."""
        while True:
            view = self._watch.view
            if isinstance(view, NvmlAnswers):  # that NVML does not answer says nothing of any one GPU
                await self._tell_losses(view, tell)
            await self._watch.changed(view)

    async def _tell_losses(self, view: NvmlAnswers, tell: Callable[[str, GpuLost], Awaitable[None]]) -> None:
        for uid, losses in lost_grants(self._pool(), view.inventory).items():
            for loss in losses:
                if (uid, loss.uuid) not in self._told:
                    self._told.add((uid, loss.uuid))
                    _log.warning("gpu_lost", actor=uid, gpu=loss.uuid, path=loss.path, cause=loss.why)
                    await tell(uid, _lost(uid, loss))

    async def xids(self, tell: Callable[[str, Problem, int], Awaitable[None]]) -> None:
        """Tell who held a GPU of its XIDs, whoever holds it now; one that loses the GPU is told as its loss."""
        while True:
            untold = await self._watch.xids.untold()
            for uid, gpu, xid, count in untold:
                if class_of(xid).policy is not XidPolicy.LOSE:
                    await tell(uid, self._reported(gpu, xid), count)
            await anyio.sleep(XIDS_AGAIN_S * len(untold))

    def _reported(self, uuid: str, xid: int) -> Problem:
        known = self._known()
        gpu = None if known is None else known.gpu(uuid)
        path, row = uuid if gpu is None else gpu.path, class_of(xid)
        message = f"XID {xid} of {path} ({uuid}): {row.what}"
        if row.policy is XidPolicy.WITHHOLD:
            message += "; nobody else is granted it until it has been well for long"
        subject = f"{path} XID {xid}"
        return Problem(step=Step.SUPERVISE, reason=Reason.GPU_ERROR_REPORTED, subject=subject, message=message)


def _lost(uid: str, loss: Loss) -> GpuLost:
    named = loss.uuid if loss.path == loss.uuid else f"{loss.path} ({loss.uuid})"
    message = f"{named}, which {uid} holds, is lost: {loss.why}"
    problem = Problem(step=Step.SUPERVISE, reason=Reason.GPU_LOST, subject=loss.path, message=message)
    return GpuLost(gpu=loss.uuid, problem=problem)
