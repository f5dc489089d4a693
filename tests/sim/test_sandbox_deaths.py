"""How a sandbox's death is told: its status, its last words, and whether the kernel ended it for its memory."""

import signal

import attrs
import pytest
import trio

from sim.documents import counter
from sim.world.world import Machine
from statemachine.states import State
from tests.sim.restarts import scene

NO_CGROUPS = attrs.evolve(Machine(), no_cgroups="cgroup v1 is mounted")


async def running(here, **spec):
    await here.submit(counter(**spec))
    await here.wait(State.RUNNING)
    await trio.sleep(0.5)


async def died(here):
    await here.until(State.FAILED)
    status = await here.status()
    assert (status["error"]["reason"], here.left()) == ("SandboxDied", [])
    return status["error"]["message"]


def sandbox_of(here):
    (process,) = (each for each in here.world.table if each.arguments[0] == "runsc-sandbox" and each.is_running)
    return process


def test_a_sandbox_that_the_kernel_killed_for_its_memory_is_told_so():
    @scene()
    async def _(here):
        await running(here)
        (name,) = here.world.cgroups.cgroups
        here.world.cgroups.run_out_of_memory(name)
        assert "killed by the kernel for its memory (oom_kill " in await died(here)


def test_a_sandbox_that_somebody_killed_is_not_told_as_the_kernels():
    @scene()
    async def _(here):
        await running(here)
        here.world.kill_sandbox("a1")
        message = await died(here)
        assert "killed by signal 9 (SIGKILL)" in message
        assert "not by the kernel for its memory (oom_kill 0)" in message


def test_where_nobody_counts_it_is_said_that_it_is_not_known():
    @scene(NO_CGROUPS)
    async def _(here):
        await running(here)
        here.world.kill_sandbox("a1")
        assert "whether by the kernel for its memory is unknown" in await died(here)


def test_a_sandbox_that_was_asked_to_end_by_somebody_else_is_told_with_that_status():
    @scene()
    async def _(here):
        await running(here)
        here.world.table.signal(sandbox_of(here), signal.SIGTERM)
        assert "(SIGTERM)" in await died(here)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_sandbox_that_died_is_not_started_again_by_itself_whatever_the_restart_policy(policy):
    @scene()
    async def _(here):
        await running(here, restartPolicy=policy)
        here.world.kill_sandbox("a1")
        await died(here)
        await trio.sleep(600)
        assert here.state() == "Failed"
        await here.resume()
