"""Volumes that are put back, cut off at every point: what is there in the end is one of the two whole states."""

import random
from contextlib import suppress
from functools import partial

import pytest
import trio

from actors import volumes
from actors.layout import ActorDir
from actors.ports import DamagedArchiveError
from sim.world import scenery
from tests.sim.disks import ROOT, new_disk, new_files

ACTOR = ActorDir(ROOT / "actors" / "a1")
NAMES = ("left", "right")
ARCHIVE = ROOT / "volumes.tar"
OLD = {name: {"content": f"old {name}".encode(), "sub/more": b"old"} for name in NAMES}
NEW = {name: {"content": f"new {name}".encode()} for name in NAMES}


class KilledError(BaseException):
    """The process is gone."""


def put(disk, content):
    for name, files in content.items():
        for path, data in files.items():
            scenery.put_file(disk, ACTOR.volume(name) / path, data)


def a_disk():
    """With an archive of the new content, and the old one in the volumes; all of it on the platter."""
    disk = new_disk()
    put(disk, NEW)
    trio.run(partial(volumes.save, new_files(disk), ACTOR, NAMES, ARCHIVE))
    trio.run(new_files(disk).remove_tree, ACTOR.volumes)
    put(disk, OLD)
    disk.sync_all()
    return disk


def content(disk):
    """What is in the volumes."""
    found: dict[str, dict[str, bytes]] = {name: {} for name in NAMES}
    for path, what in scenery.snapshot(disk, ACTOR.volumes).items():
        name, _, rest = str(path).partition("/")
        if isinstance(what, bytes):
            found[name][rest] = what
    return found


class CutOff:
    """Lets a number of parts be done, then kills the process."""

    def __init__(self, after):
        self.left, self.points = after, []

    async def at(self, point):
        self.points.append(point)
        if not self.left:
            raise KilledError
        self.left -= 1


def run(disk, work, after):
    """Do it until it is over or was cut off; returns whether it was over."""
    cut = CutOff(after)
    files = new_files(disk, cut.at)
    try:
        trio.run(work, files)
    except KilledError:
        return False
    return True


async def put_back(files):
    await volumes.put_back(files, ACTOR, NAMES, ARCHIVE)


async def start(files):
    """All of a start from a snapshot that succeeds."""
    await put_back(files)
    await volumes.confirm(files, ACTOR)
    await volumes.discard(files, ACTOR)


async def settle(files):
    await volumes.settle(files, ACTOR)


def left_over(disk):
    names = set(disk.find_directory(ACTOR.root).entries)
    return names - {"volumes"}


def cut_off_at(after, seed, work):
    """A disk on which it was cut off there, with the power when there is a seed; and whether it was over before."""
    disk = a_disk()
    is_over = run(disk, work, after)
    if seed is not None:
        disk.lose_power(random.Random(seed).randrange)
    return disk, is_over


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4])
def test_a_start_that_is_cut_off_anywhere_leaves_the_volumes_as_they_were_or_as_the_snapshot_has_them(seed):
    states = []
    for after in range(1000):
        disk, is_over = cut_off_at(after, seed, start)
        trio.run(settle, new_files(disk))
        found = content(disk)
        assert found in (OLD, NEW), after
        assert left_over(disk) == set(), after
        states.append(found == NEW)
        if is_over:
            break
    assert states[-1], "the whole of it puts the snapshot's content there"
    assert not states[0], "nothing of it leaves what was there"
    assert states == sorted(states), "once it counts, it counts"


def test_what_was_not_confirmed_is_undone():
    disk = a_disk()
    assert run(disk, put_back, 1000)
    assert content(disk) == NEW
    trio.run(settle, new_files(disk))
    assert content(disk) == OLD


@pytest.mark.parametrize("seed", [None, 5, 6])
def test_an_undo_that_is_cut_off_itself_is_finished_by_the_next(seed):
    is_over = False
    after = 0
    while not is_over:
        disk = a_disk()
        assert run(disk, put_back, 1000)
        disk.sync_all()
        is_over = run(disk, settle, after)
        if seed is not None:
            disk.lose_power(random.Random(seed * 1000 + after).randrange)
        trio.run(settle, new_files(disk))
        assert content(disk) == OLD, after
        assert left_over(disk) == set()
        after += 1
    assert after > 8


def test_settling_twice_does_no_more():
    disk = a_disk()
    trio.run(settle, new_files(disk))
    trio.run(settle, new_files(disk))
    assert content(disk) == OLD


def test_what_is_put_back_twice_is_there_once():
    disk = a_disk()
    trio.run(start, new_files(disk))
    put(disk, {"left": {"later": b"later"}})
    trio.run(start, new_files(disk))
    assert content(disk) == NEW


def test_a_start_after_one_that_was_cut_off_needs_nobody_to_settle_before():
    disk, _ = cut_off_at(25, None, start)
    trio.run(start, new_files(disk))
    assert content(disk) == NEW
    assert left_over(disk) == set()


def test_volumes_that_the_snapshot_has_not_are_left_alone():
    disk = a_disk()
    scenery.put_file(disk, ACTOR.volume("other") / "file", b"other")
    trio.run(start, new_files(disk))
    assert trio.run(partial(new_files(disk).read, ACTOR.volume("other") / "file", limit_bytes=9)) == b"other"


def test_an_archive_that_is_none_changes_nothing():
    disk = a_disk()
    scenery.put_file(disk, ROOT / "bad.tar", b"no archive")
    with pytest.raises(DamagedArchiveError):
        trio.run(volumes.put_back, new_files(disk), ACTOR, NAMES, ROOT / "bad.tar")
    assert content(disk) == OLD


def test_a_volume_that_somebody_took_away_is_saved_as_an_empty_one():
    disk = new_disk()
    trio.run(partial(volumes.save, new_files(disk), ACTOR, NAMES, ARCHIVE))
    assert content(disk) == {name: {} for name in NAMES}


class Liar:
    """Files of which one call only says that it was done."""

    def __init__(self, files, method, nth):
        self._files, self._method, self._left = files, method, nth

    def __getattr__(self, name):
        real = getattr(self._files, name)
        if name != self._method:
            return real

        async def call(*args):
            self._left -= 1
            return (() if name == "list_directory" else None) if not self._left else await real(*args)

        return call


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("method", ["rename", "remove_tree", "list_directory", "make_directory"])
def test_no_call_that_was_only_said_to_be_done_costs_what_was_there(method, nth):
    disk = a_disk()
    assert run(disk, put_back, 1000)
    with suppress(OSError):
        trio.run(settle, Liar(new_files(disk), method, nth))
    trio.run(settle, new_files(disk))
    assert content(disk) == OLD


@pytest.mark.parametrize("nth", range(1, 7))
def test_no_rename_that_was_only_said_to_be_done_leaves_half_of_a_start(nth):
    disk = a_disk()
    try:
        trio.run(start, Liar(new_files(disk), "rename", nth))
    except OSError:
        trio.run(settle, new_files(disk))
        assert content(disk) == OLD
    else:
        trio.run(settle, new_files(disk))
        assert content(disk) == NEW
