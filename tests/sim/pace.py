"""How fast the engine is, in seconds of this process's CPU: `python -m tests.sim.pace`."""

import gc
import time
import tracemalloc
from collections import Counter

import attrs
import trio

from sim.documents import idler
from sim.engine import run
from sim.faults import Fault, Hang, When
from sim.world.world import Machine
from statemachine.states import State
from tests.needs import ROOT

FRAMES = 24
"""How deep tracemalloc looks for who asked for memory: through the loop and the libraries."""
SUPERVISORS = tuple(f"{ROOT / package}/" for package in ("actors", "statemachine", "supervisor"))
WORLD = tuple(f"{ROOT / 'sim'}/{name}" for name in ("world/", "hearing", "scenario"))
STARTS_HANG = Fault(id="starts", when=When(method="append", argument="journal", times_max=None), what=Hang())
"""Actors come to the end of Assigned and no further, so that admission is looked at alone."""


@attrs.frozen(kw_only=True)
class Pace:
    """What was measured.

    Attributes:
        calls_per_s: port calls for each second of CPU, in whole lives.
        events_per_s: transitions likewise. A transition makes some eighteen calls, so this follows from that.
        admission_ms: one actor more on a worker that has up to `actors`, from the request to its answer.
        status_ms: the status of all of them.
        start_ms: from there to Running.
        supervisor_bytes: of memory, of each actor at rest in Running, with its tasks.
        world_bytes: what the simulated world holds of it.
    """

    actors: int
    calls_per_s: float
    events_per_s: float
    admission_ms: float
    status_ms: float
    start_ms: float
    supervisor_bytes: float
    world_bytes: float


def whole_lives(actors: int, rounds: int) -> tuple[float, float]:
    """Calls and transitions a second of actors that are started, suspended, resumed and stopped beside each other."""

    async def one(here, uid):
        await here.submit(idler(uid))
        await here.wait(State.RUNNING, uid)
        for _ in range(rounds):
            await here.suspend(uid)
            await here.resume(uid)
        await here.stop(uid)

    async def all_of_them(here):
        async with trio.open_nursery() as nursery:
            for number in range(actors):
                nursery.start_soon(one, here, f"a{number}")

    began_s = time.process_time()
    record = run(all_of_them, seed=1)
    cpu_s = time.process_time() - began_s
    return len(record.calls) / cpu_s, len(record.moves) / cpu_s


def admission(actors: int) -> tuple[float, float]:
    """Milliseconds of one admission and of the status of all."""
    found: list[float] = []

    async def crowd(here):
        began_s = time.process_time()
        for number in range(actors):
            await here.submit(idler(f"a{number}"))
        submitted_s = time.process_time()
        await here.ask("status")
        found.extend((submitted_s - began_s, time.process_time() - submitted_s))

    run(crowd, faults=[STARTS_HANG])
    return found[0] / actors * 1e3, found[1] * 1e3


def start_of(actors: int) -> float:
    """Milliseconds from admission to Running."""
    found: list[float] = []

    async def crowd(here):
        for number in range(actors):
            await here.submit(idler(f"a{number}"))
        began_s = time.process_time()
        for number in range(actors):
            await here.wait(State.RUNNING, f"a{number}")
        found.append(time.process_time() - began_s)

    run(crowd)
    return found[0] / actors * 1e3


def memory(actors: int) -> tuple[float, float]:
    """Bytes of one actor that runs: those that the supervisor holds, and those of the simulated world."""
    found: Counter[bool] = Counter()

    async def crowd(here):
        await here.submit(idler("first"))
        await here.wait(State.RUNNING, "first")
        gc.collect()
        tracemalloc.start(FRAMES)
        for number in range(actors):
            await here.submit(idler(f"a{number}"))
        for number in range(actors):
            await here.wait(State.RUNNING, f"a{number}")
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
        tracemalloc.stop()
        for trace in snapshot.traces:
            found[_is_of_the_world(trace.traceback)] += trace.size

    run(crowd, machine=Machine(keeps_calls=False))
    return found[False] / actors, found[True] / actors


def _is_of_the_world(traceback: tracemalloc.Traceback) -> bool:
    """Whether the world asked for it, itself or by a library. What the loop makes for a task is the supervisor's."""
    for frame in reversed(traceback):
        if frame.filename.startswith(SUPERVISORS):
            return False
        if frame.filename.startswith(WORLD):
            return True
    return False


def measure(actors: int = 1000) -> Pace:
    """Measure everything."""
    run(lambda here: here.submit(idler()))  # what is done once in a process
    calls_per_s, events_per_s = whole_lives(40, 3)
    admission_ms, status_ms = admission(actors)
    supervisor_bytes, world_bytes = memory(actors // 5)
    return Pace(
        actors=actors,
        calls_per_s=calls_per_s,
        events_per_s=events_per_s,
        admission_ms=admission_ms,
        status_ms=status_ms,
        start_ms=start_of(actors // 5),
        supervisor_bytes=supervisor_bytes,
        world_bytes=world_bytes,
    )


if __name__ == "__main__":
    for name, value in attrs.asdict(measure()).items():
        print(f"{name:14} {value:10,.1f}")  # noqa: T201 - this is its output
