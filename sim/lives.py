"""Lives of actors that are walked point by point: each a scenario, what it needs, and how it can go on afterwards."""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from sim.documents import IDLE, actor, container, counter, durable, idler
from sim.world import scenery
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sim.scenario import Stage
    from sim.world.world import World

AGAIN: Final = 99
"""The generation of the document that asks for Running when a life was cut off: higher than any in it."""


@attrs.frozen(kw_only=True)
class ActorLife:
    """A life to be walked.

    Attributes:
        name: in reports and on the command line.
        play: does everything, up to the end; what it waits for comes by itself.
        play_on: does the rest, after the supervisor was killed and another one has started; None: it is not killed.
        document: the assignment of the actor that it is about.
        machine: what the simulated machine is like.
        mend: ends what the scenario has broken outside, before another supervisor starts.
        can_run: whether the actor can be brought to Running afterwards.
    """

    name: str
    play: Callable[[Stage], Awaitable[None]]
    document: Mapping[str, Any]
    play_on: Callable[[Stage], Awaitable[None]] | None = None
    machine: Machine = attrs.field(factory=Machine)
    mend: Callable[[World], None] = lambda _: None
    can_run: bool = True

    def again(self) -> dict[str, Any]:
        """The document that asks for Running, whatever has become of the actor."""
        return asked(self.document, AGAIN, "Running")


def asked(document: Mapping[str, Any], generation: int, state: str) -> dict[str, Any]:
    """A document with another generation and wish."""
    return {
        **document,
        "metadata": {**document["metadata"], "generation": generation},
        "spec": {**document["spec"], "desiredState": state},
    }


_COUNTER: Final = counter()
_THREE: Final = actor(
    "a1", container("one"), container("two"), container("once", command=("sh", "-c", "sleep 0.3; exit 0"))
)
_MISSING: Final = actor("a1", container(command=["/bin/no-such-thing"]))
_FAILING: Final = actor("a1", container(command=["sh", "-c", "sleep 0.2; exit 3"]), restartPolicy="OnFailure")
_ENDING: Final = actor("a1", container(command=["sh", "-c", "sleep 0.3; exit 0"]))


def claiming(name: str, count: int, **more: Any) -> dict[str, Any]:
    """A container that does nothing, with so many GPUs."""
    return container(name, IDLE, resources={"limits": {"nvidia.com/gpu": count}}, **more)


_CLAIMING: Final = actor("a1", claiming("trainer", 1), claiming("eval", 1), container("logger", IDLE))
_DEAF: Final = actor("a1", container(command=("sh", "-c", "trap '' TERM; while :; do sleep 1; done")))
_ONCE: Final = actor("a3", container(command=("sh", "-c", "sleep 1.2; exit 0")))
_RETRIED: Final = actor("a4", container(command=("sh", "-c", "sleep 1; exit 3")), restartPolicy="OnFailure")
_CROWD: Final = (_DEAF, idler("a2"), _ONCE, _RETRIED, *(idler(f"a{number}") for number in range(5, 9)))
_STORED: Final = counter(suspend={"uri": "s3://bucket/snapshots"})
_DURABLE: Final = durable()
_OTHER: Final = actor("a2", claiming("solo", 1))
_GPUS: Final = Machine(gpus=some_gpus(3, minors=(5, 2, 3)), driver=Driver(version="550.90.07"))


async def _run_and_stop(here: Stage) -> None:
    await here.submit(_COUNTER)
    await here.wait(State.RUNNING)
    await here.stop()


async def _deaf(here: Stage) -> None:
    """Its stop takes the whole grace period."""
    await here.submit(_DEAF)
    await here.wait(State.RUNNING)
    await here.stop()


async def _suspend_and_resume(here: Stage) -> None:
    await here.submit(_COUNTER)
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.resume()
    await here.stop()


async def _three_containers(here: Stage) -> None:
    """Twice saved, so that an older snapshot is there that must not go too early; one container ends on the way."""
    await here.submit(_THREE)
    await here.wait(State.RUNNING)
    await trio.sleep(0.5)
    for _ in range(3):
        await here.suspend()
        await here.resume()
    await here.stop()


async def _refused_suspend(here: Stage) -> None:
    await here.submit(_COUNTER)
    await here.reach(State.SUSPENDING)
    # Room for what is measured before the freeze, and not for what gVisor then writes.
    here.world.fill_disk(slack_bytes=6 << 20)
    await here.until(State.THAWING)
    await here.until(State.RUNNING)
    here.world.make_room()
    await trio.sleep(0.5)
    await here.stop()


def _make_room(world: World) -> None:
    with suppress(FileNotFoundError):  # a crash before the first directory was made
        world.make_room()


async def _failed_start(here: Stage) -> None:
    await here.submit(_MISSING)
    await here.until(State.FAILED)


async def _backing_off(here: Stage) -> None:
    await here.submit(_FAILING)
    for _ in range(2):
        await here.until(State.BACKING_OFF)
        await here.until(State.RUNNING)
    await here.until(State.BACKING_OFF)
    await here.stop()


async def _ends_by_itself(here: Stage) -> None:
    await here.submit(_ENDING)
    await here.until(State.TERMINATED)


async def _new_generations(here: Stage) -> None:
    """Wishes that come while another one is being fulfilled: kept, followed, or the beginning of the next life."""
    await here.submit(_COUNTER)
    await here.reach(State.CREATING)
    await here.submit(asked(_COUNTER, 2, "Suspended"))
    await here.wait(State.SUSPENDED)
    await here.submit(asked(_COUNTER, 3, "Running"))
    await here.wait(State.RUNNING)
    await here.submit(asked(_COUNTER, 4, "Terminated"))
    await here.until(State.STOPPING)
    await here.submit(asked(_COUNTER, 5, "Running"))
    await here.until(State.TERMINATED)
    await here.wait(State.RUNNING)
    await here.submit(asked(_COUNTER, 4, "Terminated"))  # an old one, which changes nothing
    await here.submit(asked(_COUNTER, 6, "Suspended"))
    await here.wait(State.SUSPENDED)


async def _claimed_gpus(here: Stage) -> None:
    """Beside another holder, and on other GPUs after the resume."""
    await here.submit(_CLAIMING)
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.submit(_OTHER)
    await here.wait(State.RUNNING, "a2")
    await here.resume()
    await here.stop("a2")
    await here.stop()


async def _durable_volumes(here: Stage) -> None:
    """Saved with the memory and put back, then alone; with hooks around."""
    await here.submit(_DURABLE)
    await here.wait(State.RUNNING)
    scenery.put_file(here.world.disk, here.world.state.actor("a1").volume("work") / "deep" / "file", b"content")
    await here.suspend()
    await here.resume()
    await here.submit(durable(generation=2, suspend={"scope": "Data"}))
    await here.suspend()
    await here.resume()
    await here.stop()


async def _lost_gpu(here: Stage) -> None:
    """The one of `trainer` falls off the bus and comes back."""
    await here.submit(_CLAIMING)
    await here.wait(State.RUNNING)
    here.world.gpus.lose(2)
    await here.until(State.FAILED)
    here.world.gpus.recover(2)
    await here.submit(asked(_CLAIMING, 2, "Running"))
    await here.wait(State.RUNNING)
    await here.stop()


def _reset_gpus(world: World) -> None:
    world.gpus.recover(2)


async def _leave_three(here: Stage) -> None:
    """One that runs, one that is suspended, and one that is being suspended."""
    for uid in ("a1", "a2", "a3"):
        await here.submit(idler(uid))
    for uid in ("a1", "a2", "a3"):
        await here.wait(State.RUNNING, uid)
    await here.suspend("a2")
    await here.reach(State.SUSPENDING, "a3")


async def _take_over_three(here: Stage) -> None:
    await here.wait(State.RUNNING)
    await here.stop()


async def _leave_gpus(here: Stage) -> None:
    """One that holds GPUs, beside one that is suspended."""
    await here.submit(_CLAIMING)
    await here.wait(State.RUNNING)
    await here.submit(_OTHER)
    await here.wait(State.RUNNING, "a2")
    await here.suspend("a2")


async def _take_over_gpus(here: Stage) -> None:
    await here.wait(State.RUNNING)
    await here.resume("a2")
    await here.stop()


async def _crowd(here: Stage) -> None:
    """More actors than are suspended side by side: one is deaf to TERM, one ends by itself, one fails and restarts."""
    for document in _CROWD:
        await here.submit(document)
    for document in _CROWD:
        await here.until(State.RUNNING, document["metadata"]["uid"])
    await trio.sleep(2.0)
    await here.stop()


async def _stored(here: Stage) -> None:
    """With a store, which takes its time."""
    await here.submit(_STORED)
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.resume()
    await here.stop()


_ALL: Final = (
    ActorLife(name="run-stop", play=_run_and_stop, document=_COUNTER),
    ActorLife(name="deaf", play=_deaf, document=_DEAF),
    ActorLife(name="suspend-resume", play=_suspend_and_resume, document=_COUNTER),
    ActorLife(name="three-containers", play=_three_containers, document=_THREE),
    ActorLife(
        name="refused-suspend",
        play=_refused_suspend,
        document=_COUNTER,
        machine=Machine(state_bytes=8 << 20),
        mend=_make_room,
    ),
    ActorLife(name="failed-start", play=_failed_start, document=_MISSING, can_run=False),
    ActorLife(name="backing-off", play=_backing_off, document=_FAILING),
    ActorLife(name="ends-by-itself", play=_ends_by_itself, document=_ENDING),
    ActorLife(name="new-generations", play=_new_generations, document=_COUNTER),
    ActorLife(name="durable-volumes", play=_durable_volumes, document=_DURABLE),
    ActorLife(name="claimed-gpus", play=_claimed_gpus, document=_CLAIMING, machine=_GPUS),
    ActorLife(name="lost-gpu", play=_lost_gpu, document=_CLAIMING, machine=_GPUS, mend=_reset_gpus),
    ActorLife(name="taken-over", play=_leave_three, play_on=_take_over_three, document=idler()),
    ActorLife(name="taken-over-gpus", play=_leave_gpus, play_on=_take_over_gpus, document=_CLAIMING, machine=_GPUS),
    ActorLife(name="crowd", play=_crowd, document=_DEAF),
    ActorLife(name="stored", play=_stored, document=_STORED),
)
LIVES: Final[Mapping[str, ActorLife]] = MappingProxyType({each.name: each for each in _ALL})
"""By name. Together they perform every command of the table that is performed today."""
