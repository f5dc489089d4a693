"""Every failure of a GPU step that can be had in the world: its reason, who it concerns, and that it passes."""

import pytest
import trio

from sim.engine import run
from sim.world.nvml import Return, Symbol, Trouble
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.sim import gpu_pods as pods
from tests.sim.gpu_pods import FREE, Failure, denied, spoiled, unloaded, upgraded, without_library

VISIBLE_S = 40.0
"""Longer than a monitor may be silent: by then the worker knows whatever there is to know of NVML."""


def unavailable(text):
    return Failure(step=Step.DETECT, reason=Reason.NVML_UNAVAILABLE, subject="nvml", text=text)


# ---- detect: what NVML says stands before anybody asks

NVML = {
    "1 uninitialized": (spoiled(Symbol.COUNT, Return.UNINITIALIZED), "Uninitialized"),
    "2 invalid argument": (spoiled(Symbol.COUNT, Return.INVALID_ARGUMENT), "Invalid Argument"),
    "4 no permission": (spoiled(Symbol.INIT, Return.NO_PERMISSION), "Insufficient Permissions"),
    "6 not found": (spoiled(Symbol.COUNT, Return.NOT_FOUND), "Not Found"),
    "9 driver not loaded": (unloaded, "Driver Not Loaded"),
    "12 library not found": (without_library, "LIBRARY_NOT_FOUND"),
    "13 function not found": (spoiled(Symbol.INIT, Return.FUNCTION_NOT_FOUND), "Function Not Found"),
    "18 another driver": (upgraded, f"libraries are of {pods.OTHER_DRIVER}, the loaded module is 550.90.07"),
    "28 no gpu": (spoiled(Symbol.INIT, Return.GPU_NOT_FOUND), "GPU Not Found"),
    "999 unknown": (denied, "Unknown Error"),
    "init hangs": (spoiled(Symbol.INIT, Trouble.HANG), "monitor said nothing"),
    "count hangs": (spoiled(Symbol.COUNT, Trouble.HANG), "monitor said nothing"),
    "a name hangs": (spoiled(Symbol.UUID, Trouble.HANG), "monitor said nothing"),
    "init crashes": (spoiled(Symbol.INIT, Trouble.CRASH), "the monitor ended"),
    "count crashes": (spoiled(Symbol.COUNT, Trouble.CRASH), "the monitor ended"),
}


@pytest.mark.parametrize(("spoil", "text"), NVML.values(), ids=NVML)
def test_nvml_that_fails_is_a_reason_for_who_claims_and_for_nobody_else_and_passes(spoil, text):
    async def scenario(here):
        await pods.furnish(here)
        mend = spoil(here.world)
        # A driver that answers still is asked for nothing new: only another session notices.
        pods.end_monitors(here.world)
        await trio.sleep(VISIBLE_S)
        await pods.fails(here, unavailable(text))
        await pods.stands(here, "holder", "plain")
        mend()
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)


# ---- detect: what the pod has


def without_nodes(world):
    for gpu in world.machine.gpus:
        world.gpus.remove_node(f"nvidia{gpu.minor}")
    return world.gpus.make_nodes


def without_all_but_two(world):
    for minor in FREE[1:]:
        world.gpus.remove_node(f"nvidia{minor}")
    return world.gpus.make_nodes


def regular_files(world):
    for gpu in world.machine.gpus:
        pods.replace_by_file(world, f"nvidia{gpu.minor}")

    def mend():
        for gpu in world.machine.gpus:
            world.gpus.remove_node(f"nvidia{gpu.minor}")
        world.gpus.make_nodes()

    return mend


def covered(world):
    world.gpus.cover_proc()
    return world.gpus._write_proc


def lost(world):
    for minor in FREE[:2]:
        world.gpus.lose(minor)
    return lambda: [world.gpus.recover(minor) for minor in FREE[:2]]


def refused(reason, text):
    return Failure(step=Step.ADMISSION, reason=reason, text=text, is_refused=True)


PODS = {
    "no nodes": (without_nodes, refused(Reason.GPU_NOT_DETECTED, "this pod has no GPU")),
    "nodes that are files": (regular_files, refused(Reason.GPU_NOT_DETECTED, "this pod has no GPU")),
    "too few nodes": (without_all_but_two, refused(Reason.INSUFFICIENT_GPUS, "holder holds 1")),
    "legacy mode": (covered, refused(Reason.CDI_MODE_REQUIRED, "legacy mode")),
    "two lost": (lost, refused(Reason.INSUFFICIENT_GPUS, "holder holds 1")),
}


@pytest.mark.parametrize(("spoil", "failure"), PODS.values(), ids=PODS)
def test_a_pod_without_what_is_claimed_refuses_and_takes_it_once_it_has_it(spoil, failure):
    async def scenario(here):
        await pods.furnish(here)
        mend = spoil(here.world)
        await pods.fails(here, failure)
        assert here.state("victim") is None
        if spoil in {covered, lost}:  # a GPU without its node is lost, too: that is for another test
            await pods.stands(here, "holder", "plain")
        mend()
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)

    run(scenario, machine=pods.MACHINE)
