"""Scenes with a store in the simulated world, and what is to be seen of it."""

from typing import Any

import orjson
import trio

from actors.manifest import MANIFEST_NAME
from sim.documents import actor, counter
from sim.engine import record_of, run
from sim.faults import When
from sim.invariants.registry import check
from sim.lives import claiming
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.states import State

STORE = "s3://bucket/snapshots"
TO_STORE: dict[str, Any] = {"suspend": {"uri": STORE}}
GPUS = Machine(gpus=some_gpus(3, minors=(5, 2, 3)), driver=Driver(version="550.90.07"))


def scene(machine=None, faults=(), seed=1):
    """Run a scenario in which nothing that must hold is violated at its end."""

    def decorate(scenario):
        async def watched(here):
            await scenario(here)
            await trio.sleep(1)
            assert check(here.world, record_of(here.world)) == ()

        record = run(watched, seed=seed, machine=machine or Machine(), faults=faults)
        assert [said for said in record.log if said.event == "fault"] == []
        return record

    return decorate


def stored(here, uid="a1"):
    """The URIs of an actor's snapshots in the store, oldest first."""
    found = [
        uri for uri in here.world.objects.content if uri.startswith(f"{STORE}/{uid}/") and uri.endswith(MANIFEST_NAME)
    ]
    found.sort(key=lambda uri: orjson.loads(here.world.objects.content[uri])["createdAt"])
    return [uri.removesuffix(f"/{MANIFEST_NAME}") for uri in found]


async def stored_at(here, uid="a1"):
    """Where its last good snapshot is, as its status says, once it is said."""
    with trio.fail_after(5000):
        while (uri := (await here.status(uid))["lastGoodSnapshot"]["storedUri"]) is None:
            await trio.sleep(1)
    assert uri == stored(here, uid)[-1]
    return uri


async def started(here, document=None):
    await here.submit(document or counter(**TO_STORE))
    await here.wait(State.RUNNING)
    await trio.sleep(1)


def on_gpus(uid, count, **spec):
    return actor(uid, claiming("main", count), **spec)


def counts_on(here, first=0, uid="a1"):
    numbers = [int(each) for each in here.output(uid)]
    assert numbers == list(range(first, first + len(numbers)))
    return numbers[-1] + 1


def of_stores(method=None, **more):
    return When(port="stores", method=method, **more)
