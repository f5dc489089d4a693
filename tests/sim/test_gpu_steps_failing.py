"""nvidia-ctk that fails, and what fails after it: partition and inject. Who it concerns, and that it passes."""

import pytest
import trio

from sim.engine import run
from sim.faults import Fail, Fault, Halfway, Hang, When
from sim.world.nvml import Return, Symbol, Trouble
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from tests.sim import gpu_pods as pods
from tests.sim.gpu_pods import FREE, Failure, denied, spoiled, unloaded, upgraded, without_library

# ---- generate: what happens to nvidia-ctk, once it is asked for a spec anew


def unexecutable(world):
    for path in (world.gpus.toolkit.wrapper, world.gpus.toolkit.program):
        world.disk.change_mode(world.disk.find_regular(path), 0o644)
    return world.gpus.mount_toolkit


def unmounted(world):
    directory = world.disk.find_directory(world.gpus.toolkit.directory)
    for path in (world.gpus.toolkit.wrapper, world.gpus.toolkit.program):
        world.disk.remove(directory, path.name)
    return world.gpus.mount_toolkit


def for_one(symbol, what, minor=FREE[0]):
    def spoil(world):
        fault = world.gpus.spoil(symbol, what, minor=minor)
        return lambda: world.gpus.heal(fault)

    return spoil


def without_a_node(name):
    def spoil(world):
        world.gpus.remove_node(name)
        return world.gpus.make_nodes

    return spoil


def generate(reason, text="", subject="nvidia-ctk"):
    return Failure(step=Step.GENERATE, reason=reason, subject=subject, text=text)


LOST, FAILED, NVML_DOWN = Return.GPU_IS_LOST, Reason.GENERATE_FAILED, Reason.NVML_UNAVAILABLE
A_GPU_LOST = generate(FAILED, "a GPU of this pod is lost")
TOOLKIT = {
    "no libnvidia-ml": (without_library, generate(NVML_DOWN, subject="")),
    "driver/library mismatch": (
        upgraded,
        generate(NVML_DOWN, f"driver {pods.OTHER_DRIVER} in /usr/lib64 vs loaded 550.90.07", subject=""),
    ),
    "driver not loaded": (unloaded, generate(NVML_DOWN, "Driver Not Loaded")),
    "no access": (denied, generate(NVML_DOWN, "Unknown Error")),
    "no gpu for nvml": (spoiled(Symbol.INIT, Return.GPU_NOT_FOUND), generate(NVML_DOWN, "GPU Not Found")),
    "a symbol that is missing": (spoiled(Symbol.INIT, Return.FUNCTION_NOT_FOUND), generate(NVML_DOWN)),
    "a lost gpu at its handle": (for_one(Symbol.HANDLE_BY_INDEX, LOST), A_GPU_LOST),
    "a lost gpu at its uuid": (for_one(Symbol.UUID, LOST), A_GPU_LOST),
    "a lost gpu at its mode": (for_one(Symbol.MIG_MODE, LOST), A_GPU_LOST),
    "a lost gpu at its minor": (for_one(Symbol.MINOR, LOST), A_GPU_LOST),
    "a gpu to be reset": (for_one(Symbol.UUID, Return.RESET_REQUIRED), A_GPU_LOST),
    "it crashes": (spoiled(Symbol.UUID, Trouble.CRASH), generate(FAILED, "signal 11")),
    "uvm is gone": (without_a_node("nvidia-uvm"), generate(Reason.CDI_DEVICE_UNRESOLVED, subject="nvidia-uvm")),
    "no toolkit": (unmounted, generate(Reason.TOOLKIT_NOT_FOUND)),
    "a toolkit that cannot be executed": (unexecutable, generate(Reason.TOOLKIT_NOT_FOUND)),
}


@pytest.mark.parametrize(("spoil", "failure"), TOOLKIT.values(), ids=TOOLKIT)
def test_nvidia_ctk_that_fails_is_a_reason_for_who_waits_and_the_next_one_tries_anew(spoil, failure):
    async def scenario(here):
        await pods.furnish(here)
        await trio.sleep(10)
        await here.submit(pods.VICTIM)
        await here.until(State.GENERATING, "victim")
        pods.renew_toolkit(here.world)
        mend = spoil(here.world)
        await pods.failed(here, failure)
        mend()
        await pods.stands(here, "holder", "plain")
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)


# ---- generate: what happens while it runs


def a_node_with_graphics(world):
    """Measured: a device that has nothing but graphics nodes is a warning of nvidia-ctk, and its exit code is 0."""
    world.gpus.make_drm_nodes(3, 0)
    world.gpus.remove_node("nvidia3")
    return world.gpus.make_nodes


def all_nodes(world):
    for gpu in world.machine.gpus:
        world.gpus.remove_node(f"nvidia{gpu.minor}")
    return world.gpus.make_nodes


def full_disk(world):
    world.fill_disk()
    return world.make_room


UNRESOLVED = Reason.CDI_DEVICE_UNRESOLVED
RUNNING_TOOLKIT = {
    "no libnvidia-ml": (without_library, generate(NVML_DOWN, "finds no libnvidia-ml")),
    "driver/library mismatch": (upgraded, generate(NVML_DOWN, "Driver/library version mismatch")),
    "no gpu at all": (all_nodes, generate(Reason.GPU_NOT_DETECTED, "empty device edits")),
    "a gpu without any node": (
        without_a_node("nvidia3"),
        generate(UNRESOLVED, "no device has just /dev/nvidia3", "GPU-"),
    ),
    "a gpu with graphics nodes alone": (a_node_with_graphics, generate(UNRESOLVED, "just /dev/nvidia3", "GPU-")),
    "uvm is gone": (without_a_node("nvidia-uvm"), generate(UNRESOLVED, subject="nvidia-uvm")),
    "a full disk": (full_disk, generate(FAILED, "cannot write its output")),
    "the toolkit is gone": (unmounted, generate(Reason.TOOLKIT_NOT_FOUND)),
}


@pytest.mark.parametrize(("spoil", "failure"), RUNNING_TOOLKIT.values(), ids=RUNNING_TOOLKIT)
def test_what_happens_while_nvidia_ctk_runs_is_a_reason_as_well(spoil, failure):
    async def scenario(here):
        await pods.furnish(here)
        await trio.sleep(10)
        held_up = here.plant(Fault(id="held up", when=When(method="run", argument="cdi generate"), what=Hang()))
        await here.submit(pods.VICTIM)
        await here.until(State.GENERATING, "victim")
        pods.renew_toolkit(here.world)
        await pods.met(held_up)
        mend = spoil(here.world)
        held_up.release()
        await pods.failed(here, failure)
        mend()
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)


# ---- partition and inject


def partition(reason, text=""):
    return Failure(step=Step.PARTITION, reason=reason, text=text)


def lost_all_free(world):
    for minor in FREE:
        world.gpus.lose(minor)
    return lambda: [world.gpus.recover(minor) for minor in FREE]


def without_free_nodes(world):
    for minor in FREE:
        world.gpus.remove_node(f"nvidia{minor}")
    return world.gpus.make_nodes


PARTITION = {
    "every free gpu is lost": (lost_all_free, partition(Reason.INSUFFICIENT_GPUS, "holder holds 1")),
    "their nodes are gone": (without_free_nodes, partition(Reason.INSUFFICIENT_GPUS, "holder holds 1")),
    "nvml has failed": (unloaded, partition(NVML_DOWN, "Driver Not Loaded")),
}


@pytest.mark.parametrize(("spoil", "failure"), PARTITION.values(), ids=PARTITION)
def test_gpus_that_go_before_they_are_granted_are_a_reason(spoil, failure):
    async def scenario(here):
        await pods.furnish(here)
        await here.submit(pods.VICTIM)
        await here.until(State.GENERATING, "victim")
        # What it does next is to write down that it is Partitioning.
        held_up = here.plant(Fault(id="held up", when=When(method="append", argument="victim/journal"), what=Hang()))
        await pods.met(held_up)
        mend = spoil(here.world)
        await trio.sleep(5.0)
        held_up.release()
        await pods.failed(here, failure)
        mend()
        await pods.stands(here, "holder", "plain")
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)


def inject(reason, text="", subject=""):
    return Failure(step=Step.INJECT, reason=reason, text=text, subject=subject)


def as_a_file(name):
    def spoil(world):
        pods.replace_by_file(world, name)

        def mend():
            world.gpus.remove_node(name)
            world.gpus.make_nodes()

        return mend

    return spoil


def failing(error, **when):
    def spoil(world):
        world.plan.plant(Fault(id="planted", when=When(incarnation=1, **when), what=Fail(error)))
        return lambda: None

    return spoil


def cut_off(error, at):
    """The activation's directory is made as far as that."""

    def spoil(world):
        when = When(incarnation=1, method="make_tree")
        world.plan.plant(Fault(id="planted", when=when, what=Halfway(at=at, error=error)))
        return lambda: None

    return spoil


UNWRITABLE = Reason.STATE_UNWRITABLE
INJECT = {
    "uvm is gone": (without_a_node("nvidia-uvm"), inject(UNRESOLVED, subject="/dev/nvidia-uvm")),
    "case 001 uvm is a file": (
        as_a_file("nvidia-uvm"),
        inject(UNRESOLVED, "not a character device", subject="/dev/nvidia-uvm"),
    ),
    "its gpu is a file": (as_a_file("nvidia3"), inject(UNRESOLVED, "not a character device", subject="/dev/nvidia3")),
    "its gpu is gone": (without_a_node("nvidia2"), inject(UNRESOLVED, subject="/dev/nvidia2")),
    "a full disk": (full_disk, inject(UNWRITABLE)),
    "nothing at all": (failing("EROFS", method="make_tree"), inject(UNWRITABLE)),
    "no gpus.json": (cut_off("EIO", "made gpus/trainer"), inject(UNWRITABLE)),
    "no config.json of who claims": (cut_off("ENOSPC", "made bundles/trainer"), inject(UNWRITABLE)),
    "half a config.json of pause": (cut_off("EROFS", "created bundles/pause/config.json"), inject(UNWRITABLE)),
    "no cover": (cut_off("ENOSPC", "written cover/cover"), inject(UNWRITABLE)),
    "no links": (failing("ENOSPC", method="make_links"), inject(UNWRITABLE, subject="lib-")),
}


@pytest.mark.parametrize(("spoil", "failure"), INJECT.values(), ids=INJECT)
def test_what_cannot_be_injected_is_a_reason_and_runsc_is_not_called(spoil, failure):
    async def scenario(here):
        await here.submit(pods.PLAIN)
        await here.wait(State.RUNNING, "plain")
        before = calls_of_runsc(here)
        await here.submit(pods.VICTIM)
        await here.until(State.PARTITIONING, "victim")
        # It looks at the nodes before it makes anything.
        held_up = here.plant(Fault(id="held up", when=When(method="lstat_each", argument="nvidia-uvm "), what=Hang()))
        await here.until(State.INJECTING, "victim")
        await pods.met(held_up)
        mend = spoil(here.world)
        held_up.release()
        await pods.failed(here, failure)
        assert calls_of_runsc(here) == before
        assert not here.left() or here.world.sandboxes_of("plain")
        mend()
        await trio.sleep(pods.CLEARED_S)
        await pods.runs(here)
        assert await pods.ends(here, "victim", "plain") == []

    run(scenario, machine=pods.MACHINE)


def calls_of_runsc(here):
    return sum(call.method == "run" and " create " in call.argument for call in here.world.ledger.calls)
