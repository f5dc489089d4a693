"""A keeper of CDI specs at work, for tests."""

from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint

from statemachine.problem import ProblemError
from supervisor.spec_keeper import SpecKeeper
from tests.gpu.pods import CDI, DRIVER


@asynccontextmanager
async def keeping(pod, *, source=None, **more):
    """A keeper at work."""
    keeper = SpecKeeper(
        ports=pod.as_ports, directory=CDI, source=source or pod.source(), settle_s=more.pop("settle_s", 0), **more
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        with anyio.fail_after(90):
            yield keeper
        tasks.cancel_scope.cancel()


async def until(holds):
    while not holds():
        await checkpoint()


async def ask(keeper, pod, answers=None):
    """The spec, or the problem; also appended to `answers`."""
    try:
        answer = await keeper.spec(pod.inventory, DRIVER)
    except ProblemError as error:
        answer = error.problem
    if answers is not None:
        answers.append(answer)
    return answer
