"""SIGUSR1: what the worker does just now, told in its log: every actor, and every task with where it waits.

For a worker that seems to hang: nothing is locked or waited for, so it is told in a drain as well, and whatever an
actor does. It is bounded, and in between other tasks have their turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog
from anyio import lowlevel

from actors.codec import rfc3339
from statemachine.states import STEP_OF

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anyio import TaskInfo

    from supervisor.life import Life
    from supervisor.worker import Worker

LINES_MAX: Final = 500
"""Lines of actors, and as many of tasks."""
PATH_CHARACTERS_MAX: Final = 200
FRAMES_MAX: Final = 6
"""Of our own functions, from the innermost outwards."""
_AWAITABLES_MAX: Final = 200
_TURN: Final = 20
_OURS: Final = ("supervisor.", "actors.", "sim.", "statemachine.")
_SEPARATOR: Final = " > "

_log = structlog.get_logger("greenroom.show")


@attrs.frozen
class Told:
    """One task: who it belongs to, itself last, and in which functions it waits, the innermost last."""

    task: str
    waits_in: tuple[str, ...]


async def show(worker: Worker) -> None:
    """Tell everything, as warnings: who asks for it sees it at every level of the log."""
    lives, tasks = worker.lives, tuple(told_tasks(anyio.get_running_tasks(), anyio.get_current_task().id))
    _log.warning("asked", signal="SIGUSR1", actors=len(lives), tasks=len(tasks))
    for number, life in enumerate(lives[:LINES_MAX], 1):
        _tell_standing(worker, life)
        await _give_way(number)
    for number, told in enumerate(tasks[:LINES_MAX], 1):
        _log.warning("waits", task=told.task, waits_in=list(told.waits_in))
        await _give_way(number)
    if (left := max(0, len(lives) - LINES_MAX) + max(0, len(tasks) - LINES_MAX)) > 0:
        _log.warning("left_out", lines=left)


async def _give_way(number: int) -> None:
    if number % _TURN == 0:
        await lowlevel.checkpoint()


def _tell_standing(worker: Worker, life: Life) -> None:
    actor = life.actor
    step, held = STEP_OF.get(actor.state), worker.gpus.held_by(life.uid)
    _log.warning(
        "stands",
        actor=life.uid,
        generation=life.assignment.generation,
        state=str(actor.state),
        since=rfc3339(life.since_s),
        step=None if step is None else str(step),
        deadline_s=actor.deadline_s,
        uploading=sorted(worker.uploads.under_way(life.uid)),
        gpus={name: list(uuids) for name, uuids in held.items()},
    )


def told_tasks(tasks: Sequence[TaskInfo], asking: int) -> Iterator[Told]:
    """Every task but the one that asks: children after their parents, by their names."""
    by_id = {task.id: task for task in tasks}
    children: dict[int | None, list[TaskInfo]] = {}
    for task in sorted(tasks, key=lambda each: each.name or ""):
        children.setdefault(task.parent_id if task.parent_id in by_id else None, []).append(task)
    waiting = [(task, task.name or "") for task in reversed(children.get(None, []))]
    while waiting:
        task, path = waiting.pop()
        if task.id != asking:
            yield Told(_shortened(path), waits_in(task.coro))
        waiting += [(child, f"{path}{_SEPARATOR}{child.name}") for child in reversed(children.get(task.id, []))]


def waits_in(awaitable: object) -> tuple[str, ...]:
    """The functions of ours that a coroutine is in, `module:line function`; of a library's, where there is no other."""
    frames = list(_frames(awaitable))
    ours = [text for text, is_ours in frames if is_ours]
    return tuple(ours[-FRAMES_MAX:] or [text for text, _ in frames[-1:]])


def _frames(awaitable: Any) -> Iterator[tuple[str, bool]]:
    for _ in range(_AWAITABLES_MAX):
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(awaitable, f"{kind}_frame")), None)
        if kind is None:
            return
        frame = getattr(awaitable, f"{kind}_frame")
        if frame is None:
            return
        module = frame.f_globals.get("__name__", "?")
        yield f"{module}:{frame.f_lineno} {frame.f_code.co_name}", module.startswith(_OURS)
        awaitable = getattr(awaitable, {"cr": "cr_await", "gi": "gi_yieldfrom", "ag": "ag_await"}[kind])


def _shortened(path: str) -> str:
    """The end of it says most."""
    return path if len(path) <= PATH_CHARACTERS_MAX else f"…{path[-PATH_CHARACTERS_MAX + 1 :]}"
