"""Activations that nobody goes on with: ended at the start, when a drain's deadline left some, and until they are gone.

What an actor knows of is undone by the actor's own steps, see `cleanups`. Of what is here no actor knows any more, so a
failed end would stay until the next start, with the room and the GPUs that it holds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors.runsc.teardown import Leftover, end_activation, find_leftovers
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.cleanups import AGAIN_MAX_S, AGAIN_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.layout import StateDir
    from actors.ports import Ports, ProcessIdentity
    from actors.runsc.reclaiming import Survivor
    from supervisor.worker import Worker

KILLS_MAX: Final = 128
"""Processes that are killed side by side: each holds a descriptor until it is gone."""
KILL_S: Final = 5.0
TRY_S: Final = 30.0
"""For one more try at one of them: its processes have ten seconds, the rest is the removal."""

_log = structlog.get_logger("greenroom.recover")


@attrs.frozen(kw_only=True)
class Unended:
    """An activation that could not be ended, and of which no actor knows.

    Attributes:
        activation: its name.
        holder: the activation by whose name its GPUs are held; None where no GPUs of its own are.
    """

    activation: str
    holder: str | None = None


async def end_leftovers(ports: Ports, state_dir: StateDir) -> None:
    """End every activation that has a process or a directory: at the start, and when a drain's deadline left some."""
    await end_all(ports, state_dir, await find_leftovers(ports.processes, ports.files, state_dir.sandboxes))


async def end_all(ports: Ports, state_dir: StateDir, leftovers: Sequence[Leftover]) -> list[str]:
    """End activations; returns the names of those of which something is still there, which is told."""
    await kill_at_once(ports, leftovers)
    return [each.activation for each in leftovers if not await _end(ports, state_dir, each)]


async def kill_at_once(ports: Ports, leftovers: Sequence[Leftover]) -> None:
    """Kill every process of every activation before any is cleared away.

    To end an activation means to look at every process of the machine, more than once: with some thousand of them, one
    after the other, that takes minutes, and a shutdown has seconds. What stays is met, and told, by that end.
    """
    limit = anyio.CapacityLimiter(KILLS_MAX)

    async def kill(identity: ProcessIdentity) -> None:
        async with limit:
            with suppress(OSError):  # DeadlineExceededError is one
                await ports.processes.kill_and_wait(identity, deadline_s=KILL_S)

    async with anyio.create_task_group() as group:
        for leftover in leftovers:
            for identity in leftover.processes:
                group.start_soon(kill, identity)


async def end_survivors(ports: Ports, state_dir: StateDir, worker: Worker, survivors: Sequence[Survivor]) -> list[str]:
    """End what nobody goes on with of one actor; its GPUs are free after that. Returns what is still there."""
    leftovers = [Leftover(activation=each.record.activation, processes=each.processes) for each in survivors]
    left = await end_all(ports, state_dir, leftovers)
    if survivors and not left:
        worker.gpus.give_back(survivors[0].record.actor)
    return left


def unended(worker: Worker, uid: str, activations: Sequence[str]) -> list[Unended]:
    """Activations that their actor does not know of: until all are gone they hold its GPUs, and it may book others."""
    if activations:
        worker.gpus.leave_to(activations[0], uid)
    return [Unended(activation=name, holder=activations[0]) for name in activations]


async def end_until_gone(ports: Ports, worker: Worker, unended: Sequence[Unended]) -> None:
    """Try again, later and later, until nothing of them is there; then their GPUs are free, and their cgroups go.

    A shutdown breaks off a try, and ends them itself: it has no time to wait for one.
    """
    again_s, left = AGAIN_S, list(unended)
    while left:
        _log.warning("cleanup", activations=[each.activation for each in left], in_s=again_s)
        await anyio.sleep(again_s)
        again_s = min(2 * again_s, AGAIN_MAX_S)
        left = await _end_again(ports, worker, left)


async def _end_again(ports: Ports, worker: Worker, unended: Sequence[Unended]) -> list[Unended]:
    """Those that are still there. One that hangs keeps no other one from its try."""
    left = [each for each in unended if not await _has_ended(ports, worker.state_dir, each)]
    for holder in {each.holder: None for each in unended}:  # in their order
        if holder is not None and all(each.holder != holder for each in left):
            worker.gpus.give_back(holder)
    await worker.cgroups.sweep_after(ports, {each.activation for each in unended if each not in left})
    return left


async def _has_ended(ports: Ports, state_dir: StateDir, unended: Unended) -> bool:
    with anyio.move_on_after(TRY_S):
        try:
            return await _end(ports, state_dir, Leftover(activation=unended.activation, processes=()))
        except Exception:  # noqa: BLE001 - a fault of ours costs no actor anything
            _log.exception("fault", activation=unended.activation, reason=str(Reason.INTERNAL))
    return False


async def _end(ports: Ports, state_dir: StateDir, leftover: Leftover) -> bool:
    """Whether nothing of it is there any more; why something is, is told."""
    try:
        await end_activation(ports.processes, ports.files, state_dir.activation(leftover.activation))
    except ProblemError as error:
        tell_unusable(leftover.activation, error)
        return False
    _log.info("ended", activation=leftover.activation, processes=len(leftover.processes))
    return True


def tell_unusable(subject: str, error: ProblemError) -> None:
    """Log what is wrong with something that an earlier life of the worker left."""
    for problem in error.problems:
        _log.warning("unusable", subject=subject, reason=str(problem.reason), message=problem.message)
