"""Worlds that are brought somewhere and then spoilt, for the tests of checkers."""

from pathlib import Path

import orjson
import trio

from sim.documents import counter
from sim.engine import record_of, run
from sim.hearing import Moved
from sim.invariants.registry import check
from sim.world import scenery
from statemachine.states import State


def looked_at(here, record=None):
    return check(here.world, record or record_of(here.world))


def names(found):
    return {each.name for each in found}


async def running(here, document=None):
    await here.submit(document or counter())
    await here.wait(State.RUNNING)
    await trio.sleep(0.5)


async def suspended(here):
    await running(here)
    await here.suspend()
    await trio.sleep(0.5)


def put(here, path, data):
    scenery.put_file(here.world.disk, Path(path), data if isinstance(data, bytes) else orjson.dumps(data))


def files(here, uid="a1"):
    return here.world.state.actor(uid)


def spoilt(prepare, spoil):
    """What is found after a world was brought somewhere and spoilt; nothing was before."""
    found = []

    async def scenario(here):
        await prepare(here)
        assert looked_at(here) == ()
        record = spoil(here)
        found.extend(looked_at(here, record))

    run(scenario)
    return found


def rewritten(here, change):
    lines = here.journal()
    change(lines)
    put(here, files(here).journal, b"".join(orjson.dumps(line) + b"\n" for line in lines))


def a_move(here, before, after, *, at_s=None, life=1, event="Activate"):
    at_s = trio.current_time() if at_s is None else at_s
    return Moved(at_s=at_s, incarnation=life, actor="a1", before=before, after=after, event=event, reason=None)
