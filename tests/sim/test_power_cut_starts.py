"""A start that ends in the middle: what stands below `sandboxes/` was for that boot, and the next life clears it.

Nothing of it is synced, so that a record may be found whole, torn, empty or not at all, as any other file there.
"""

import itertools
from collections import Counter

import pytest

from actors.runsc.record import RECORD_NAME, read_record
from sim.documents import actor, container
from sim.engine import run
from sim.faults import Fault, Halfway, Kill, When
from sim.world import scenery
from sim.world.files import SimFiles
from sim.world.nodes import Directory
from statemachine.problem import ProblemError
from statemachine.states import State

THREE = actor("a1", container("one"), container("two"), container("three"))
LAST_RECORD = 3
"""How often the record is written by such an actor's start."""
SEEDS = 5
FOR_BOOT = ("replace_for_boot", "make_tree")


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


# ---- in the middle of making the directory of an activation


def tree_points():
    """What can be the last part of the directory that was made, in their order."""
    found = []

    async def life(here):
        await here.submit(THREE)
        await here.wait(State.RUNNING)
        (activation,) = here.world.disk.find_directory(here.world.state.sandboxes).entries.values()
        made = (part for name in ("enter", "bundles") for part in parts_of(activation.entries[name], name))
        found.extend(["made", *made, "renamed"])

    run(life)
    return found


def parts_of(node, name):
    if not isinstance(node, Directory):
        return [f"created {name}", f"written {name}"]
    return [
        f"made {name}",
        *(part for each, below in node.entries.items() for part in parts_of(below, f"{name}/{each}")),
    ]


def cut_within(point, *, loses_power):
    """Kill the supervisor when so much of the directory is made; returns what there is then, and what is left."""
    kept = []

    async def life(here):
        sandboxes = here.world.state.sandboxes
        await here.submit(THREE)
        assert await ended_early(here)
        kept.extend(sorted(scenery.snapshot(here.world.disk, sandboxes)))
        if loses_power:
            await here.world.reboot()
        worker = await here.start()
        assert worker.lives
        assert here.left() == []
        assert not here.world.disk.find_directory(sandboxes).entries
        assert here.state() == State.FAILED
        await here.resume()

    when = When(port="files", method="make_tree", incarnation=1)
    record = run(life, seed=len(point), faults=[Fault(id="cut", when=when, what=Halfway(at=point))])
    assert not [said for said in record.log if said.event in {"fault", "unusable"}]
    return kept


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power cut"])
def test_wherever_the_making_of_an_activation_is_cut_off_nobody_takes_it_for_one(loses_power):
    points = tree_points()
    assert len(points) > 15
    sizes = []
    for point in points:
        left = cut_within(point, loses_power=loses_power)
        is_whole = point == "renamed"
        assert all(name.startswith(".") is not is_whole for name in left), (point, left)
        sizes.append(len(left))
    assert sizes == sorted(sizes)
    assert (sizes[0], len(set(sizes))) == (1, sizes[-1])  # each name in its turn
