"""Actors with claims in the simulated world: what each of their containers has, over suspend and resume."""

import json
from pathlib import Path

import pytest

from sim.documents import actor, container
from sim.engine import run
from sim.world import scenery
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.states import State

DRIVER = Driver(version="550.54.15")
FOUR = Machine(gpus=some_gpus(4, minors=(7, 2, 5, 3)), driver=DRIVER)
SANDBOXES = Path("/var/lib/greenroom/sandboxes")
CONTROL = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}


def claiming(name, count):
    return container(name, resources={"limits": {"nvidia.com/gpu": count}})


A = actor("a", claiming("trainer", 1), claiming("eval", 1), container("logger"))
B = actor("b", claiming("solo", 2))


def files_of(here, ending):
    """Files of all activations, with the container that each is for."""
    found = scenery.snapshot(here.world.disk, SANDBOXES)
    return [(Path(name).parts[-2], json.loads(data or b"")) for name, data in found.items() if name.endswith(ending)]


def devices(here):
    """The GPUs' nodes of every container; every `pause` is looked at, and all have none."""
    nodes: dict[str, set[str]] = {}
    for name, config in files_of(here, "/config.json"):
        names = {Path(device["path"]).name for device in config["linux"].get("devices", ())}
        assert not names or names > CONTROL
        nodes.setdefault(name, set()).update(names - CONTROL)
    return {name: sorted(names) for name, names in nodes.items()}


def told(here):
    """What each container is told: minors now and at the snapshot, by ordinal."""
    return {
        name: [(each["now"]["minor"], each["atSnapshot"] and each["atSnapshot"]["minor"]) for each in content["gpus"]]
        for name, content in files_of(here, "/gpus.json")
    }


async def both_up(here):
    for document in (A, B):
        await here.submit(document)
        await here.reach(State.RUNNING, uid=document["metadata"]["uid"])


def test_every_container_has_exactly_its_gpus_and_keeps_their_order_over_a_resume_on_others():
    async def scenario(here):
        await both_up(here)
        assert devices(here) == {
            "trainer": ["nvidia2"], "eval": ["nvidia3"], "logger": [], "solo": ["nvidia5", "nvidia7"], "pause": [],
        }  # fmt: skip
        assert told(here) == {"trainer": [(2, None)], "eval": [(3, None)], "solo": [(5, None), (7, None)]}
        for uid in ("a", "b"):
            await here.ask("suspend", uid=uid)
            await here.reach(State.SUSPENDED, uid=uid)
        assert not devices(here)
        for uid in ("b", "a"):
            await here.ask("resume", uid=uid)
            await here.reach(State.RUNNING, uid=uid)
        assert told(here) == {"solo": [(2, 5), (3, 7)], "trainer": [(5, 2)], "eval": [(7, 3)]}
        assert devices(here) == {
            "solo": ["nvidia2", "nvidia3"], "trainer": ["nvidia5"], "eval": ["nvidia7"], "logger": [], "pause": [],
        }  # fmt: skip

    run(scenario, machine=FOUR)


def test_an_actor_of_which_data_alone_was_saved_starts_anew_on_what_it_gets():
    document = actor("a", claiming("trainer", 1), durableVolumes=[{"name": "work"}], suspend={"scope": "Data"})

    async def scenario(here):
        await here.submit(document)
        await here.reach(State.RUNNING, uid="a")
        await here.suspend("a")
        await here.submit(B)
        await here.reach(State.RUNNING, uid="b")
        await here.resume("a")
        assert told(here)["trainer"] == [(5, None)], "nothing is said of a snapshot that it does not come from"

    run(scenario, machine=FOUR)


@pytest.mark.parametrize("uid", ["a", "b"])
def test_what_an_actor_held_is_free_once_it_is_stopped(uid):
    async def scenario(here):
        await both_up(here)
        await here.ask("stop", uid=uid)
        await here.reach(State.TERMINATED, uid=uid)
        holders = {each["holder"] and each["holder"]["uid"] for each in (await here.ask("status"))["worker"]["gpus"]}
        assert holders == {None, *({"a", "b"} - {uid})}

    run(scenario, machine=FOUR)
