"""Changes of directories: what holds for the real port and for the simulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import pytest

from sim.world.watch import SimWatch
from supervisor.host.watch import HostWatch
from tests.contract.places import Place, RealPlace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from actors.ports import Files, Watch

pytestmark = pytest.mark.anyio

EVERYTHING: Final[frozenset[str]] = frozenset()
BOUND_S: Final = 90.0
# Longer than the real one needs to notice anything.
QUIET_S: Final = 0.3


@pytest.fixture
def watch(place: Place) -> Watch:
    return HostWatch() if isinstance(place, RealPlace) else SimWatch(place.disk)


@pytest.fixture
def directory(place: Place) -> Path:
    place.put_directory(place.root / "watched")
    return place.root / "watched"


async def following(batches: AsyncIterator[frozenset[str]]) -> frozenset[str]:
    with anyio.fail_after(BOUND_S):
        return await anext(batches)


async def names_until(batches: AsyncIterator[frozenset[str]], name: str) -> set[str]:
    found: set[str] = set()
    while name not in found:
        found |= await following(batches)
    return {name for name in found if not name.startswith(".")}


async def test_new_changed_moved_and_removed_entries_are_named(files: Files, watch: Watch, directory: Path):
    async with watch.changes(directory) as batches:
        await files.replace(directory / "a", b"1")
        assert await names_until(batches, "a") == {"a"}
        await files.append(directory / "a", b"2")
        assert await names_until(batches, "a") == {"a"}
        await files.rename(directory / "a", directory / "b")
        assert "b" in await names_until(batches, "b")
        await files.remove_file(directory / "b")
        assert await names_until(batches, "b") <= {"a", "b"}
        await files.make_directory(directory / "d")
        assert await names_until(batches, "d") <= {"b", "d"}


async def test_what_comes_before_somebody_looks_comes_together(files: Files, watch: Watch, directory: Path):
    async with watch.changes(directory) as batches:
        for number in range(20):
            await files.append(directory / str(number), b"1")
        await files.append(directory / "last", b"1")
        assert await names_until(batches, "last") == {*map(str, range(20)), "last"}


async def test_what_lies_deeper_is_not_told(place: Place, files: Files, watch: Watch, directory: Path):
    place.put_directory(directory / "below")
    async with watch.changes(directory) as batches:
        await files.append(directory / "below" / "deep", b"1")
        await files.append(directory.with_name("beside"), b"1")
        with anyio.move_on_after(QUIET_S):
            assert await anext(batches) <= {"below"}
        await files.append(directory / "a", b"1")
        assert "a" in await names_until(batches, "a")


async def test_a_directory_that_vanishes_and_comes_back_is_everything(files: Files, watch: Watch, directory: Path):
    async with watch.changes(directory) as batches:
        await files.remove_tree(directory)
        assert await following(batches) == EVERYTHING
        await files.append(directory, b"no directory")
        with anyio.move_on_after(QUIET_S) as scope:
            await anext(batches)
        assert scope.cancelled_caught
        await files.remove_file(directory)
        await files.make_directory(directory)
        assert await following(batches) == EVERYTHING
        await files.append(directory / "a", b"1")
        await names_until(batches, "a")


async def test_a_directory_that_is_absent_at_first_is_waited_for(place: Place, files: Files, watch: Watch):
    directory = place.root / "not" / "yet"
    async with watch.changes(directory) as batches:
        await files.make_directory(directory)
        assert await following(batches) == EVERYTHING
        await files.append(directory / "a", b"1")
        await names_until(batches, "a")


async def test_who_can_wait_is_told_the_same_names(files: Files, watch: Watch, directory: Path):
    async with watch.changes(directory, within_s=0.2) as batches:
        await files.replace(directory / "a", b"1")
        assert await names_until(batches, "a") == {"a"}
        await files.append(directory / "a", b"2")
        assert await names_until(batches, "a") == {"a"}
        await files.remove_file(directory / "a")
        assert await names_until(batches, "a") == {"a"}


@pytest.mark.parametrize("exchanged", ["itself", "a parent", "a symlink"])
async def test_another_directory_at_the_path_is_watched_instead(
    place: Place, files: Files, watch: Watch, exchanged: str
):
    for name in ("old", "new"):
        place.put_directory(place.root / name / "watched")
    place.put_symlink(place.root / "link", "old")
    place.put_symlink(place.root / "other", "new")
    directory = place.root / ("link" if exchanged == "a symlink" else "old") / "watched"
    async with watch.changes(directory) as batches:
        if exchanged == "itself":
            await files.rename(directory, place.root / "aside")
            await files.rename(place.root / "new" / "watched", directory)
        elif exchanged == "a parent":
            await files.rename(place.root / "old", place.root / "aside")
            await files.rename(place.root / "new", place.root / "old")
        else:
            await files.remove_file(place.root / "link")
            await files.rename(place.root / "other", place.root / "link")
        while await following(batches) != EVERYTHING:
            pass
        # What follows may be told by name, or be part of another "everything" while the exchange is still noticed.
        place.put_file(directory / "a", b"1")
        while "a" not in (found := await following(batches)) and found != EVERYTHING:
            pass
        place.put_file(directory / "b", b"1")
        assert "b" in await names_until(batches, "b")


async def test_an_exception_of_the_body_comes_out_as_it_is(watch: Watch, directory: Path):
    with pytest.raises(ZeroDivisionError):
        async with watch.changes(directory):
            raise ZeroDivisionError
