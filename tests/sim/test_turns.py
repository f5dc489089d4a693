"""Who goes on at a call that takes no time: any share of turns is a run of the same machine, and seeds differ."""

import pytest
import trio

from sim.documents import counter
from sim.engine import run
from sim.world.turns import Turns
from sim.world.world import Machine
from statemachine.states import State


async def there_and_back(here):
    await here.submit(counter())
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.resume()
    await here.stop()


@pytest.mark.parametrize("share", [0.0, 0.125, 1.0])
def test_a_life_comes_through_the_same_states_however_often_others_go_first(share):
    record = run(there_and_back, machine=Machine(turns_share=share))
    assert record.states("a1") == run(there_and_back).states("a1")


def turns_of(share, *, draws):
    """What two tasks do beside each other, each with a call between its two words."""
    drawn = iter(draws)
    said = []

    async def one(name, turns):
        said.append(f"{name} before")
        await turns.let_others_run()
        said.append(f"{name} after")

    async def main():
        turns = Turns(lambda: next(drawn), share)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "a", turns)
            nursery.start_soon(one, "b", turns)

    trio.run(main)
    return said


def test_others_go_first_exactly_where_the_draw_says_so():
    assert [word[2:] for word in turns_of(0.5, draws=(0.9, 0.9))] == ["before", "after", "before", "after"]
    assert [word[2:] for word in turns_of(0.5, draws=(0.1, 0.1))] == ["before", "before", "after", "after"]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_who_is_cancelled_learns_it_at_a_call_whether_others_go_first_or_not(share):
    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            await Turns(lambda: 0.5, share).let_others_run()
        assert scope.cancelled_caught

    trio.run(main)


def test_another_seed_is_another_order_of_the_same_calls():
    orders = {tuple((call.port, call.method) for call in run(there_and_back, seed=seed).calls) for seed in range(6)}
    assert len(orders) > 1
