"""What an earlier life of the worker left of sandboxes: which of them may be gone on with, and which are to be ended.

Looked at before anything else: the GPUs of a sandbox that lives are its own from the first moment on, and so is the
CDI spec whose libraries it uses. A record of another boot is not believed, and no process is looked at because of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import structlog

from actors.gpu.partition import Grant
from actors.runsc.reclaiming import Survivor, survivor_of
from actors.runsc.record import RECORD_NAME
from actors.runsc.teardown import Leftover, find_leftovers
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.setting_aside import set_aside

if TYPE_CHECKING:
    from actors.layout import StateDir
    from actors.ports import Ports
    from supervisor.gpu_desk import WorkerGpus

_log = structlog.get_logger("greenroom.recover")


@attrs.frozen(kw_only=True)
class Survey:
    """What was found.

    Attributes:
        alive: what may be gone on with, by the uid of its actor; more than one is one too many.
        dead: whatever else is left of activations: nobody goes on with that.
    """

    alive: dict[str, tuple[Survivor, ...]]
    dead: tuple[Leftover, ...]


async def survey(ports: Ports, state_dir: StateDir, gpus: WorkerGpus) -> Survey:
    """Look at what is left of every activation, and keep the GPUs of those that live.

    Raises:
        ProblemError: ProcessesUnreadable.
    """
    alive: dict[str, tuple[Survivor, ...]] = {}
    dead: list[Leftover] = []
    boot_id = ports.wall.boot_id()
    for leftover in await find_leftovers(ports.processes, ports.files, state_dir.sandboxes):
        survivor = await _survivor(ports, state_dir, leftover, boot_id) if leftover.processes else None
        if survivor is None:
            dead.append(leftover)
        else:
            uid = survivor.record.actor
            alive[uid] = (*alive.get(uid, ()), survivor)
            _keep_gpus(survivor, gpus)
    return Survey(alive=alive, dead=tuple(dead))


async def _survivor(ports: Ports, state_dir: StateDir, leftover: Leftover, boot_id: str) -> Survivor | None:
    directory = state_dir.activation(leftover.activation)
    try:
        return await survivor_of(ports.files, directory, leftover, boot_id=boot_id)
    except ProblemError as error:
        for problem in error.problems:
            _log.warning("unusable", subject=leftover.activation, reason=str(problem.reason), message=problem.message)
        if error.problem.reason is Reason.NEWER_FORMAT:
            # Its sandbox is ended, and its directory goes; what a newer version wrote is kept for that.
            name = f"{leftover.activation}.{RECORD_NAME}"
            await set_aside(ports, directory / RECORD_NAME, beside=state_dir.root / name)
        return None


def _keep_gpus(survivor: Survivor, gpus: WorkerGpus) -> None:
    belongings = survivor.record.belongings
    if belongings is None or belongings.spec is None or not belongings.granted:
        return
    grants = [Grant(each.container, tuple(gpu.uuid for gpu in each.gpus)) for each in belongings.granted]
    if not gpus.keep(survivor.record.actor, grants, belongings.spec):
        _log.warning("gpus", actor=survivor.record.actor, message="its GPUs are held by another sandbox that lives")
