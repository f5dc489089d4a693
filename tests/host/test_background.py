"""Tasks that serve a block of code: they end with it, and never hide why it ended."""

import anyio
import anyio.lowlevel
import pytest

from supervisor.host.background import open_background

pytestmark = pytest.mark.anyio


async def serving(task, then):
    """A body with one task beside it, which has begun when the body does what comes then."""
    async with open_background() as tasks:
        tasks.start_soon(task)
        await anyio.lowlevel.checkpoint()
        await then()


async def divide():
    raise ZeroDivisionError


async def fail():
    raise KeyError("a bug of ours")


async def fail_when_cancelled():
    try:
        await anyio.sleep_forever()
    finally:
        await fail()


async def test_what_the_body_raises_comes_out_as_it_is_and_the_tasks_have_ended():
    ended = []

    async def serve():
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    with pytest.raises(ZeroDivisionError):
        await serving(serve, divide)
    assert ended == [True]


async def test_a_task_that_ends_badly_does_not_hide_why_the_body_ended():
    with pytest.raises(ZeroDivisionError) as caught:
        await serving(fail_when_cancelled, divide)
    assert isinstance(caught.value.__cause__, ExceptionGroup)


async def test_a_task_that_fails_ends_the_body_and_comes_out_as_a_group():
    with pytest.raises(ExceptionGroup) as caught:
        await serving(fail, anyio.sleep_forever)
    assert caught.group_contains(KeyError)
