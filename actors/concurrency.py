"""Several jobs of one step side by side: the first failure ends the others, and it alone is the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def together(*jobs: Callable[[], Awaitable[None]]) -> None:
    """Run all jobs at once and return when all have ended.

    The first job that fails cancels its siblings. A sibling that fails while it is being cancelled is not reported:
    what it says is a consequence (a sandbox that is gone), and would hide the cause.

    Raises:
        ProblemError, OSError: the first job's, as it was raised.
    """
    if len(jobs) == 1:  # most often: a group costs more than many a job
        await jobs[0]()
        return
    first: list[ProblemError | OSError] = []

    async def guarded(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except (ProblemError, OSError) as error:
            if not first:
                first.append(error)
            group.cancel_scope.cancel()

    *others, own = jobs or (_nothing,)
    async with anyio.create_task_group() as group:
        for job in others:
            group.start_soon(guarded, job)
        await guarded(own)  # a task costs more than many a job
    if first:
        raise first[0]


async def _nothing() -> None:
    """The job of nobody."""
