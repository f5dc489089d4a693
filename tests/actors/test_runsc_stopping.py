"""A container that lives without its file server: that it has stopped is looked at, and known to all who wait."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from actors.runsc import sandbox as module
from actors.runsc.answers import Status
from actors.runsc.driver import Target
from actors.runsc.sandbox import Sandbox

pytestmark = pytest.mark.anyio
BOUND_S = 30.0
NEVER_S = 3600.0


class Runsc:
    """Says of each container what the test has it say."""

    def __init__(self, *names):
        self.statuses, self.looks = dict.fromkeys(names, Status.RUNNING), []

    async def state(self, target):
        self.looks.append(target.name)
        return SimpleNamespace(status=self.statuses[target.name])


@pytest.fixture
def runsc(monkeypatch):
    monkeypatch.setattr(module, "_LOOK_MIN_S", NEVER_S)
    return Runsc("web", "log")


@pytest.fixture
def sandbox(runsc):
    nobody: Any = None
    targets = {name: Target.of(name, name) for name in runsc.statuses}
    return Sandbox(runsc=runsc, record=nobody, process=nobody, gofers={}, targets=targets)


async def test_what_one_sees_who_looks_later_is_known_at_once_to_who_is_between_two_looks(runsc, sandbox):
    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.until_stopped, "web")
            await anyio.wait_all_tasks_blocked()
            runsc.statuses["web"] = Status.STOPPED
            await sandbox.until_stopped("web")
    assert runsc.looks == ["web", "web"]


async def test_who_asks_when_it_is_known_does_not_look_again(runsc, sandbox):
    runsc.statuses["web"] = Status.STOPPED
    await sandbox.until_stopped("web")
    await sandbox.until_stopped("web")
    assert runsc.looks == ["web"]


async def test_the_end_of_one_container_says_nothing_of_another(runsc, sandbox):
    ended = []

    async def wait(name):
        await sandbox.until_stopped(name)
        ended.append(name)

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(wait, "log")
            await anyio.wait_all_tasks_blocked()
            runsc.statuses["web"] = Status.STOPPED
            await wait("web")
            await anyio.wait_all_tasks_blocked()
            assert ended == ["web"]
            group.cancel_scope.cancel()


async def test_who_is_cut_off_costs_the_others_nothing(runsc, sandbox):
    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.until_stopped, "web")
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        runsc.statuses["web"] = Status.STOPPED
        await sandbox.until_stopped("web")
    assert runsc.looks == ["web", "web"]
