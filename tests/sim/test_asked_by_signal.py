"""SIGHUP and SIGUSR1 all the time, in the middle of everything: each is answered, and every life goes as ever."""

import signal

import pytest
import trio

from sim.documents import counter
from sim.engine import run
from statemachine.states import State

EVERY_S = 0.01


async def a_life(here):
    """Through all of it: a start, a suspend, a resume, and the drain of the worker."""
    await here.submit(counter())
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.resume()
    here.worker.signal(signal.SIGTERM)
    await here.worker.ended.wait()


async def a_life_that_is_asked(here):
    async def ask():
        while True:
            here.worker.signal(signal.SIGUSR1)
            here.worker.signal(signal.SIGHUP)
            await trio.sleep(EVERY_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await a_life(here)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_worker_that_is_asked_all_the_time_answers_and_does_all_the_same(seed):
    plain, asked = run(a_life, seed=seed), run(a_life_that_is_asked, seed=seed)
    assert asked.states("a1") == plain.states("a1")
    told = [said.event for said in asked.log]
    assert min(told.count("asked"), told.count("not_reloaded")) > 10
    assert [said for said in asked.log if said.event == "fault" or said.level == "error"] == []
    assert "asked" not in [said.event for said in plain.log]


def test_asked_in_a_start_it_shows_the_actor_in_the_middle_of_it():
    async def life(here):
        await here.submit(counter())
        await here.wait(State.CREATING)
        here.worker.signal(signal.SIGUSR1)
        await here.wait(State.RUNNING)

    shown = [said.fields for said in run(life).log if said.event == "stands"]
    assert [(fields["actor"], fields["state"], fields["step"]) for fields in shown] == [("a1", "Creating", "create")]
