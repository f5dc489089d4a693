"""What the tests of restarts share: scenes of which nothing may be violated, and a look at what was left."""

import json
from contextlib import suppress

import trio

from actors.runsc.record import RECORD_NAME
from sim.documents import counter
from sim.engine import record_of, run
from sim.invariants.registry import check
from sim.world import scenery
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.states import State

GPUS = Machine(gpus=some_gpus(3, minors=(5, 2, 3)), driver=Driver(version="550.90.07"))


def scene(machine=None):
    """Run a scenario in which nothing that must hold is violated at its end."""

    def decorate(scenario):
        async def watched(here):
            await scenario(here)
            await trio.sleep(1)
            assert not (found := check(here.world, record_of(here.world))), found

        run(watched, seed=1, machine=machine or Machine())

    return decorate


def counts_from_zero(here, uid="a1", name="main"):
    numbers = here.output(uid, name)
    assert numbers == [str(number) for number in range(len(numbers))]
    return len(numbers)


def activation_of(here):
    """The record of the only activation there is, and where it stands."""
    (name,) = (each for each in here.world.files_below(here.world.state.sandboxes) if each.endswith(RECORD_NAME))
    path = here.world.state.sandboxes / name
    return json.loads(here.world.read(path)), path


def write_record(here, **changes):
    document, path = activation_of(here)
    scenery.put_file(here.world.disk, path, json.dumps({**document, **changes}).encode())


async def killed_while_running(here, *documents):
    for document in documents or (counter(),):
        await here.submit(document)
    for document in documents or (counter(),):
        await here.wait(State.RUNNING, document["metadata"]["uid"])
    await trio.sleep(0.5)
    here.kill()


async def lost(here):
    """Why the actor is Failed because of the restart, with nothing left of it."""
    status = await here.wait(State.FAILED)
    assert (status["error"]["reason"], here.left()) == ("SupervisorRestarted", [])
    return status["error"]["message"]


async def suspended_until_dead(here):
    """Ask for a suspend, in the course of which the supervisor dies."""
    with suppress(ProblemError):
        await here.suspend()
    await here.worker.ended.wait()


async def until(condition):
    with trio.fail_after(100):
        while not condition():
            await trio.sleep(0.001)
