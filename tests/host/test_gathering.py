"""Looks that are asked for at the same time make one visit to a thread, and none of them hurts another one."""

import threading

import anyio
import pytest

from supervisor.host import gathering
from supervisor.host.background import open_background
from supervisor.host.gathering import Gathering

pytestmark = pytest.mark.anyio

BOUND_S = 60.0


@pytest.fixture
def visits(monkeypatch):
    """How many looks each visit did."""
    found, look = [], gathering._look

    def counted(every):
        found.append(len(every))
        look(every)

    monkeypatch.setattr(gathering, "_look", counted)
    return found


async def test_what_is_asked_for_at_the_same_time_is_one_visit_and_each_gets_its_own(visits):
    looks, found = Gathering(), {}

    async def ask(number):
        found[number] = await looks.run(lambda: number * number)

    async with open_background() as tasks, anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()  # all have asked before anybody looks
        tasks.start_soon(looks.serve)
    assert found == {number: number * number for number in range(100)}
    assert visits == [100]


async def test_what_is_asked_for_while_somebody_looks_is_the_next_visit(visits):
    looks, may_end = Gathering(), threading.Event()
    async with open_background() as tasks, anyio.create_task_group() as group:
        tasks.start_soon(looks.serve)
        group.start_soon(looks.run, may_end.wait)
        await anyio.wait_all_tasks_blocked()
        for _ in range(10):
            group.start_soon(looks.run, int)
        await anyio.wait_all_tasks_blocked()
        may_end.set()
    assert visits == [1, 10]


async def test_a_look_that_fails_fails_for_who_asked_and_for_nobody_else():
    looks, found = Gathering(), []

    def broken():
        raise OSError("broken")

    async def ask_what_fails():
        with pytest.raises(OSError, match="broken"):
            await looks.run(broken)
        found.append("failed")

    async def ask():
        found.append(await looks.run(lambda: "found"))

    async with open_background() as tasks, anyio.create_task_group() as group:
        group.start_soon(ask_what_fails)
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(looks.serve)
    assert sorted(found) == ["failed", "found"]


async def test_who_waits_for_a_look_that_hangs_can_go_and_so_can_who_serves():
    looks, may_end, gone = Gathering(), threading.Event(), []
    try:
        with anyio.fail_after(BOUND_S):
            async with open_background() as tasks:
                tasks.start_soon(looks.serve)
                async with anyio.create_task_group() as group:
                    group.start_soon(looks.run, may_end.wait)
                    await anyio.wait_all_tasks_blocked()
                    group.cancel_scope.cancel()
                gone.append("who waits")
            gone.append("who serves")
        assert gone == ["who waits", "who serves"]
    finally:
        may_end.set()
