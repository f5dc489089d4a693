"""A power cut in the middle of a start: what stands below `sandboxes/` was for that boot, and the next one clears it.

Nothing of it is synced, so that a record may be found whole, torn, empty or not at all, as any other file there.
"""

import itertools
from collections import Counter

import pytest

from actors.runsc.record import RECORD_NAME, read_record
from sim.documents import actor, container
from sim.engine import run
from sim.faults import Fault, Kill, When
from sim.world import scenery
from sim.world.files import SimFiles
from statemachine.problem import ProblemError
from statemachine.states import State

THREE = actor("a1", container("one"), container("two"), container("three"))
LAST_RECORD = 7
"""The last of its files that such an actor's start replaces is the record, after four config.json."""
SEEDS = 5
FOR_BOOT = ("replace_for_boot", "replace_executable", "make_directory_for_boot")


async def kind_of(world, activation):
    """What is left of an activation's record."""
    path = activation / RECORD_NAME
    left = scenery.snapshot(world.disk, activation)
    if RECORD_NAME not in left:
        return "absent"
    if not left[RECORD_NAME]:
        return "empty"
    try:
        await read_record(SimFiles(world.disk, roots=[path.parent], owner=object()), activation)
    except ProblemError:
        return "torn"
    return "whole"


def cut_at(method, nth, seed):
    """Cut the power after that call of a start; returns what was left, or None where there is no such call."""
    kinds = []

    async def life(here):
        sandboxes = here.world.state.sandboxes
        await here.submit(THREE)
        if await ended_early(here):
            await here.world.reboot()
            left = sorted(here.world.disk.find_directory(sandboxes).entries)
            kinds.extend([await kind_of(here.world, sandboxes / name) for name in left])
            worker = await here.start()
            assert worker.lives
            assert here.left() == []
            assert not here.world.disk.find_directory(sandboxes).entries
            assert here.state() == State.FAILED
            await here.resume()
        else:
            kinds.append(None)

    when = When(port="files", method=method, nth=nth, incarnation=1)
    record = run(life, seed=seed, faults=[Fault(id="cut", when=when, what=Kill(after=True))])
    assert not [said for said in record.log if said.event in {"fault", "unusable"}]
    return kinds


async def ended_early(here):
    """Whether the supervisor dies before its actor runs."""
    try:
        await here.wait(State.RUNNING)
    except (OSError, ProblemError, AssertionError):
        if here.worker.lives:
            raise
    return not here.worker.lives


@pytest.mark.parametrize("method", FOR_BOOT)
def test_a_start_that_lost_the_power_is_cleared_away_and_complained_about_by_nobody(method):
    kinds: Counter[str] = Counter()
    for nth in itertools.count(1):
        found = [cut_at(method, nth, seed=seed) for seed in range(SEEDS)]
        if found[0] == [None]:
            break
        for left in found:
            kinds.update(left or ["no activation"])
    assert len(kinds) > 1


def test_a_record_may_be_left_in_every_way():
    """Or else the test above would not meet what it is about."""
    kinds: Counter[str] = Counter()
    for seed in range(40):
        kinds.update(cut_at("replace_for_boot", LAST_RECORD, seed=seed))
    assert kinds.keys() >= {"absent", "empty", "torn", "whole"}
