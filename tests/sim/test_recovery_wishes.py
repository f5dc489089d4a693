"""Wishes that a crash came between: written down, and not yet acted on."""

from contextlib import suppress

import pytest
import trio

from sim.documents import counter
from sim.faults import Fault, Halfway, Kill, When
from statemachine.problem import ProblemError
from statemachine.states import State
from tests.sim.restarts import scene

# ---- wishes


@pytest.mark.parametrize("wish", ["Suspended", "Terminated"])
@pytest.mark.parametrize("when", ["the assignment is written", "the memory is written"])
def test_a_wish_that_was_written_down_and_not_acted_on_is_acted_on(wish, when):
    """Nobody was answered; who asks again is told that this generation is known."""

    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        written = (
            When(port="files", method="replace", argument=r"assignment\.json$")
            if when == "the assignment is written"
            else When(port="files", method="append_durably", argument=r"journal\.jsonl$")
        )
        here.plant(Fault(id="crash", when=written, what=Kill(after=True)))
        with suppress(ProblemError):
            await here.submit(counter(generation=2, state=wish))
        await here.worker.ended.wait()
        await here.start()
        await here.submit(counter(generation=2, state=wish))
        await here.wait(State(wish))
        await here.restart()
        assert (await here.status())["state"] == wish


@pytest.mark.parametrize("written", ["created", "written", "synced", "renamed"])
def test_a_wish_that_was_refused_because_it_could_not_be_written_does_not_come_with_the_next_start(written):
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        assignment = When(port="files", method="replace", argument=r"assignment\.json$")
        here.plant(Fault(id="half", when=assignment, what=Halfway(at=written, error="EIO")))
        with pytest.raises(ProblemError, match="cannot be written"):
            await here.submit(counter(generation=2, state="Terminated"))
        await here.restart()
        await trio.sleep(5)
        status = await here.status()
        assert (status["state"], status["generation"]) == ("Running", 1)


@pytest.mark.parametrize("wish", ["Running", "Suspended", "Terminated"])
def test_a_wish_for_another_life_that_was_written_down_is_followed(wish):
    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        await here.suspend()
        await here.stop()
        crash_here = When(port="files", method="replace", argument=r"assignment\.json$")
        here.plant(Fault(id="crash", when=crash_here, what=Kill(after=True)))
        with suppress(ProblemError):
            await here.submit(counter(generation=2, state=wish))
        await here.worker.ended.wait()
        await here.start()
        await here.submit(counter(generation=2, state=wish))
        assert (await here.wait(State(wish)))["generation"] == 2


def test_a_wish_that_was_acted_on_is_not_acted_on_again():
    """What a command has asked for since holds until the next generation, over a restart too."""

    @scene()
    async def _(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        await here.submit(counter(generation=2, state="Suspended"))
        await here.wait(State.SUSPENDED)
        await here.resume()
        await here.restart()
        await trio.sleep(5)
        assert (await here.status())["state"] == "Running"
