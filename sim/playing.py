"""A life is played in the simulated world until something comes, and then goes on under another supervisor.

The walks (`sim.walker`, `sim.terminations`) say what comes and when; here is what comes before and after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from sim.engine import record_of
from sim.invariants.registry import check
from sim.invariants.standing import not_gone_on_with, standing_in
from sim.invariants.violation import Violation
from statemachine.problem import ProblemError
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sim.lives import ActorLife
    from sim.scenario import Stage
    from sim.world.world import World

SETTLE_S: Final = 1800.0
"""Virtual seconds in which every actor must have come to rest: longer than any deadline."""
QUIET_S: Final = 0.5
"""Virtual seconds after rest in which what comes last is written."""
_LOOK_EVERY_S: Final = 1.0
_LOOK_ON_EVERY_S: Final = 0.2


# ---- up to what comes


class Disturbance(Protocol):
    """What is to come in the middle of a life. Up to then it wakes no task: all go on in the same order without it."""

    def watch(self, world: World) -> None:
        """Wait for it in this world, from before its supervisor starts."""
        ...

    def has_come(self) -> bool:
        """Whether it has; from then on it is no fault of anybody's that the life does not go as it should."""
        ...

    async def wait_until_over(self) -> None:
        """Wait for it, and until it is over."""
        ...


class Nothing:
    """What does not come."""

    def watch(self, _world: World) -> None:
        """There is nothing to wait for."""

    def has_come(self) -> bool:
        """Never."""
        return False

    async def wait_until_over(self) -> None:
        """Without an end."""
        await trio.sleep_forever()


async def play(here: Stage, life: ActorLife, found: list[Violation], disturbance: Disturbance) -> None:
    """Play until everything was played, or until what disturbs it has come and is over.

    Up to then every run of a life is the same to the call, whatever comes: it has the same tasks.
    """

    def tell(each: Violation) -> None:
        if not disturbance.has_come() and each not in found:
            found.append(each)

    async with trio.open_nursery() as nursery:

        async def act() -> None:
            try:
                await life.play(here)
                if life.play_on is not None and not disturbance.has_come():  # whoever leaves or is dead is not killed
                    await here.restart()
                    await life.play_on(here)
                await settle(here)
            except Exception as error:  # noqa: BLE001 - who asks a supervisor that is dead or leaves is told so, in whatever way
                tell(violation("Plays", f"it does not go as it should: {error!r}"))
            if not disturbance.has_come():
                nursery.cancel_scope.cancel()

        nursery.start_soon(act)
        nursery.start_soon(look_on, here, tell)
        await disturbance.wait_until_over()
        nursery.cancel_scope.cancel()


async def look_on(here: Stage, tell: Callable[[Violation], None]) -> None:
    """Look whenever everything has been at rest for a moment, not only at the end."""
    looked_at = -1
    while True:
        await trio.sleep(_LOOK_ON_EVERY_S)
        moves, states = here.world.hearing.moves, here.world.hearing.states.values()
        rests = all(State(state) in RESTING | FINAL for state in states)
        if rests and len(moves) > max(looked_at, 0) and trio.current_time() - moves[-1].at_s > _LOOK_ON_EVERY_S / 2:
            looked_at = len(moves)
            for each in check(here.world, record_of(here.world)):
                tell(each)


async def settle(here: Stage) -> list[str]:
    """Wait until every actor rests; returns those that do not."""
    with trio.move_on_after(SETTLE_S):
        while True:
            actors = (await here.ask("status"))["actors"]
            if all(State(each["state"]) in RESTING | FINAL for each in actors):
                await trio.sleep(QUIET_S)
                return []
            await trio.sleep(_LOOK_EVERY_S)
    return [f"{each['uid']} is {each['state']}" for each in (await here.ask("status"))["actors"]]


# ---- afterwards


async def go_on(here: Stage, life: ActorLife) -> AsyncIterator[Violation]:
    """Another supervisor starts on what is left, and goes on with it, up to the end of the actor; or to a violation."""
    life.mend(here.world)
    standing = standing_in(here.world)
    worker = await here.start()
    if not worker.lives:
        yield violation("Restarts", f"the next supervisor ended with {worker.error!r}")
        return
    found = [violation("GoesOnWithIt", what) for what in not_gone_on_with(here.world, standing)]
    for step in (come_to_rest, run_again, end):
        found += [each async for each in step(here, life)]
        if found:
            break
    for each in found:
        yield each


async def come_to_rest(here: Stage, _life: ActorLife) -> AsyncIterator[Violation]:
    """Everything comes to rest, and is as it must be."""
    for what in await settle(here):
        yield violation("Settles", f"{what} after {SETTLE_S:g} s")
    for each in check(here.world, record_of(here.world)):
        yield each


async def run_again(here: Stage, life: ActorLife) -> AsyncIterator[Violation]:
    """Whatever became of the actor, a new generation brings it to Running, where it can run."""
    document = life.again()
    uid = document["metadata"]["uid"]
    try:
        await here.submit(document)
        if life.can_run:
            await here.wait(State.RUNNING, uid)
    except ProblemError as error:
        yield violation("GoesOn", f"it cannot be brought to Running: {error.problem}")
    async for each in come_to_rest(here, life):
        yield each


async def end(here: Stage, life: ActorLife) -> AsyncIterator[Violation]:
    """It can be ended for good, and leaves nothing."""
    uid = life.document["metadata"]["uid"]
    try:
        await here.stop(uid)
    except ProblemError as error:
        yield violation("GoesOn", f"it cannot be stopped: {error.problem}")
    async for each in come_to_rest(here, life):
        yield each


def violation(name: str, message: str) -> Violation:
    """Found by the walk itself, and by no checker."""
    return Violation(name=name, subject="the walk", message=message)
