"""A pod with four GPUs on which two actors run already, for tests of what a fault does to a third, and only to it."""

import signal
from pathlib import Path

import attrs
import trio

from sim.documents import IDLE, actor, container
from sim.engine import record_of
from sim.invariants.registry import check
from sim.lives import asked, claiming
from sim.world import scenery
from sim.world.gpu_monitor import COMMAND_LINE
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State

HELD = 2
"""The minor of the GPU that somebody has."""
FREE = (3, 5, 7)
MACHINE = Machine(gpus=some_gpus(4, minors=(7, 2, 5, 3)), driver=Driver(version="550.90.07"))
OTHER_DRIVER = "550.54.15"
LIBRARIES = Path("/usr/lib64")
HOLDER = actor("holder", claiming("solo", 1))
PLAIN = actor("plain", container("main", IDLE))
VICTIM = actor("victim", claiming("trainer", 1), claiming("eval", 1), container("logger", IDLE))
PATIENCE_S = 2000.0
CLEARED_S = 150.0
"""In so many virtual seconds whatever was mended outside is known: a monitor is replaced after 30 s at most."""


@attrs.frozen(kw_only=True)
class Failure:
    """How an actor must fail.

    Attributes:
        step, reason: as its status says.
        subject, text: what must be in the problem's subject, and in its message.
        is_refused: whether it is not even admitted.
    """

    step: Step
    reason: Reason
    subject: str = ""
    text: str = ""
    is_refused: bool = False

    def fits(self, problem):
        assert (problem["step"], problem["reason"]) == (self.step, self.reason), problem
        assert self.subject in problem["subject"], problem
        assert self.text in problem["message"], problem
        assert problem["hint"]


async def furnish(here):
    """Two actors that nothing must happen to."""
    for document in (HOLDER, PLAIN):
        await here.submit(document)
        await here.wait(State.RUNNING, document["metadata"]["uid"])


async def fails(here, failure, *, document=VICTIM):
    """Submit an actor, which must fail just so; returns its problem."""
    uid = document["metadata"]["uid"]
    try:
        await here.submit(document)
    except ProblemError as error:
        if not failure.is_refused:
            raise
        names = ("step", "reason", "subject", "message", "hint", "detail")
        problem = {name: str(getattr(error.problem, name)) for name in names}
        failure.fits(problem)
        return problem
    assert not failure.is_refused, "it was admitted"
    return await failed(here, failure, uid=uid)


async def failed(here, failure, *, uid="victim"):
    """Wait until it has, and just so; returns its problem."""
    await here.until(State.FAILED, uid)
    problem = (await here.status(uid))["error"]
    failure.fits(problem)
    return problem


async def comes_to_rest(here, document):
    """Submit an actor, and wait until it runs, has failed, or was refused: its state, and why."""
    uid = document["metadata"]["uid"]
    try:
        await here.submit(document)
    except ProblemError as error:
        return {"state": None, "step": error.problem.step, "reason": error.problem.reason, "subject": uid}
    with trio.fail_after(PATIENCE_S):
        while here.state(uid) not in {"Running", "Failed"}:
            await trio.sleep(0.1)
    told = (await here.status(uid))["error"] or {}
    return {**told, "state": here.state(uid)}


async def holds_what_it_claims(here, outcome):
    """The victim has its two GPUs when it runs, and else none."""
    has = [minor for minor, uid in (await holders(here)).items() if uid == "victim"]
    assert len(has) == (2 if outcome["state"] == "Running" else 0), outcome
    assert check(here.world, record_of(here.world)) == ()


async def runs(here, generation=2, *, document=VICTIM):
    """A new generation brings the actor to Running."""
    await here.submit(asked(document, generation, "Running"))
    await here.wait(State.RUNNING, document["metadata"]["uid"])
    await trio.sleep(0.5)


async def met(fault):
    """Wait until a call has met a planted fault."""
    with trio.fail_after(PATIENCE_S):
        while not fault.has_fired:
            await trio.sleep(0.01)


async def stands(here, *uids):
    """Look with every checker: nothing is left of who failed, and these run, with what they had from the start."""
    await trio.sleep(0.5)
    assert check(here.world, record_of(here.world)) == ()
    for uid in uids:
        states = [move.after for move in here.world.hearing.moves if move.actor == uid]
        assert states[-1] == "Running"
        assert states.count("Running") == 1, f"something happened to {uid}: {states}"
    assert await holders(here) == {HELD: "holder"}


async def holders(here):
    """Who has which GPU, by minor, as the worker tells."""
    gpus = (await here.ask("status"))["worker"]["gpus"]
    return {each["minor"]: each["holder"]["uid"] for each in gpus if each["holder"] is not None}


async def ends(here, *uids):
    """Everything ends well, and then nobody has anything; returns what is left."""
    for uid in uids:
        await here.stop(uid)
    await trio.sleep(0.5)
    assert check(here.world, record_of(here.world)) == ()
    assert await holders(here) == {}
    return here.left()


def end_monitors(world):
    """Whoever asks NVML is killed: the next one has a session of its own."""
    for process in [process for process in world.table if process.arguments == COMMAND_LINE and process.is_running]:
        world.table.signal(process, signal.SIGKILL)


def renew_toolkit(world):
    """Another toolkit of the same version comes: what was generated by the one before is not used any more."""
    world.gpus.mount_toolkit()


def replace_by_file(world, name):
    """A device node becomes a regular file."""
    world.gpus.remove_node(name)
    scenery.put_file(world.disk, world.gpus.dev / name, b"")


def remove_library(world, name="libnvidia-ml.so.1"):
    world.disk.remove(world.disk.find_directory(LIBRARIES), name)


# ---- what happens to the GPUs, and what ends it


def spoiled(symbol, what):
    def spoil(world):
        fault = world.gpus.spoil(symbol, what)
        return lambda: world.gpus.heal(fault)

    return spoil


def unloaded(world):
    world.gpus.unload_driver()
    return world.gpus.reload_driver


def upgraded(world):
    world.gpus.upgrade_driver(OTHER_DRIVER)
    return world.gpus.reload_driver


def denied(world):
    world.gpus.deny_devices()
    return world.gpus.allow_devices


def without_library(world):
    remove_library(world)
    return world.gpus._put_libraries
