"""Containers whose file server (gofer) is killed: a sign of an end that is none, of what was restored.

Measured on runsc 20240729: nobody misses the file server of a container that was restored; one that was started cold
ends with it.
"""

import signal

import pytest
import trio

from sim.documents import actor, container, counter
from statemachine.states import State
from tests.sim.restarts import activation_of, counts_from_zero, scene

TWENTY_MINUTES_S = 1200.0
EXITS = ["sh", "-c", "sleep 100; exit 7"]


def kill_file_server(here, name="main"):
    """As the kernel does it for want of memory."""
    record, _ = activation_of(here)
    here.world.table.signal(here.world.table.get(record["gofers"][name]["pid"]), signal.SIGKILL)


async def resumed(here, document):
    await here.submit(document)
    await here.wait(State.RUNNING)
    await trio.sleep(0.5)
    await here.suspend()
    await here.resume()
    await trio.sleep(0.5)


async def notices(here):
    return [(each["reason"], each["subject"], each["count"]) for each in (await here.status())["notices"]]


LOST = [("FileServerLost", "main", 1)]


def test_a_restored_container_that_lost_its_file_server_is_told_and_runs_on():
    @scene()
    async def _(here):
        await resumed(here, counter())
        kill_file_server(here)
        counted = counts_from_zero(here)
        await trio.sleep(TWENTY_MINUTES_S)
        assert here.state() == "Running"
        assert counts_from_zero(here) > counted + 10 * (TWENTY_MINUTES_S - 1)
        status = await here.status()
        assert [each["exitCode"] for each in status["containers"]] == [None]
        assert await notices(here) == LOST
        record, _ = activation_of(here)
        assert record["belongings"]["doubted"] == ["main"]
        looks = sum(" state " in call.argument for call in here.world.ledger.calls)
        assert looks < TWENTY_MINUTES_S / 20, "it is looked at ever more rarely"


def test_it_counts_as_exited_when_it_has_exited_with_its_own_code():
    @scene()
    async def _(here):
        await resumed(here, actor("a1", container(command=EXITS)))
        kill_file_server(here)
        await trio.sleep(60)
        assert (here.state(), await notices(here)) == ("Running", LOST)
        await here.until(State.FAILED)
        status = await here.status()
        assert (status["error"]["reason"], status["containers"][0]["exitCode"]) == ("ContainerFailed", 7)
        assert [each["reason"] for each in status["notices"]] == ["FileServerLost"], "whoever looks why wants to know"
        await here.resume()
        assert await notices(here) == [], "that is another life of it"


def test_it_is_stopped_within_its_grace_and_not_at_once():
    slow = ["sh", "-c", "trap 'sleep 5; echo done; exit 0' TERM; while :; do sleep 0.1; done"]

    @scene()
    async def _(here):
        await resumed(here, actor("a1", container(command=slow)))
        kill_file_server(here)
        await trio.sleep(60)
        await here.stop()
        assert here.output()[-1:] == ["done"]
        assert here.left() == []


@pytest.mark.parametrize("after_s", [18.0, 20.0, 25.0, 60.0, 600.0])
def test_its_exit_code_is_kept_however_long_the_watch_would_not_have_looked_when_it_is_stopped(after_s):
    obeys = ["sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.1; done"]

    @scene()
    async def _(here):
        await resumed(here, actor("a1", container(command=obeys)))
        kill_file_server(here)
        await trio.sleep(after_s)
        await here.stop()
        assert [each["exitCode"] for each in (await here.status())["containers"]] == [7]
        assert here.left() == []


@pytest.mark.parametrize("after_s", [1.0, 60.0])
def test_a_restarted_worker_goes_on_with_it(after_s):
    @scene()
    async def _(here):
        await resumed(here, counter())
        kill_file_server(here)
        await trio.sleep(after_s)
        await here.restart()
        counted = counts_from_zero(here)
        await trio.sleep(TWENTY_MINUTES_S)
        assert here.state() == "Running"
        assert counts_from_zero(here) > counted
        assert await notices(here) == LOST
        await here.stop()
        assert here.left() == []


def test_the_death_of_its_sandbox_is_seen_all_the_same():
    @scene()
    async def _(here):
        await resumed(here, counter())
        kill_file_server(here)
        await trio.sleep(60)
        here.world.kill_sandbox("a1")
        await here.until(State.FAILED)
        assert (await here.status())["error"]["reason"] == "SandboxDied"


def test_a_container_that_was_started_cold_ends_with_its_file_server():
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        kill_file_server(here)
        await here.until(State.FAILED)
        status = await here.status()
        assert (status["error"]["reason"], status["containers"][0]["exitCode"]) == ("ContainerFailed", 137)
        assert status["notices"] == []
