"""The simulated disk: what a power failure takes, and what it never takes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from actors.ports import NewDirectory, NewFile
from sim.world import scenery
from sim.world.disk import SimDisk
from sim.world.files import SimFiles
from tests.sim.disks import ROOT, new_disk, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


def outcomes(make: Callable[[], SimDisk]) -> Iterator[dict[str, Any]]:
    """What every choice there is leads to, each once, in a tree of choices that is walked depth first."""
    pending: list[list[int]] = [[]]
    while pending:
        given_choices = pending.pop()
        taken: list[int] = []

        def choose(count: int, given_choices: list[int] = given_choices, taken: list[int] = taken) -> int:
            if len(taken) < len(given_choices):
                taken.append(given_choices[len(taken)])
            else:
                pending.extend([*taken, other] for other in range(1, count))
                taken.append(0)
            return taken[-1]

        disk = make()
        disk.lose_power(choose)
        yield scenery.snapshot(disk, ROOT)


def distinct(make: Callable[[], SimDisk]) -> list[dict[str, Any]]:
    return [dict(found) for found in {tuple(sorted(outcome.items())): None for outcome in outcomes(make)}]


def test_of_a_file_that_was_not_synced_any_beginning_may_be_left():
    def make() -> SimDisk:
        disk = new_disk()
        directory = disk.find_directory(ROOT)
        node = disk.create(directory, "it", 0o600)
        disk.sync(directory)
        disk.append(node, b"12")
        disk.sync(node)
        disk.append(node, b"34")
        return disk

    assert sorted(found["it"] for found in distinct(make)) == [b"12", b"123", b"1234"]


def test_a_cut_that_was_not_synced_may_not_have_happened():
    def make() -> SimDisk:
        disk = new_disk()
        node = scenery.put_file(disk, ROOT / "it", b"1234")
        disk.cut(node, 2)
        disk.append(node, b"xy")
        return disk

    assert sorted(found["it"] for found in distinct(make)) == [b"12", b"1234", b"12x", b"12xy"]


def test_a_name_that_was_not_synced_may_be_gone_although_its_content_was_synced():
    def make() -> SimDisk:
        disk = new_disk()
        disk.sync(disk.create(disk.find_directory(ROOT), "it", 0o600))
        return disk

    assert distinct(make) == [{}, {"it": b""}]


def test_a_removal_that_was_not_synced_may_not_have_happened():
    def make() -> SimDisk:
        disk = new_disk()
        scenery.put_file(disk, ROOT / "it", b"1")
        disk.remove(disk.find_directory(ROOT), "it")
        return disk

    assert distinct(make) == [{"it": b"1"}, {}]


@pytest.mark.parametrize("synced", [None, "a", "b"])
def test_a_rename_between_directories_is_never_torn(synced: str | None):
    def make() -> SimDisk:
        disk = new_disk()
        scenery.put_file(disk, ROOT / "a" / "it", b"1")
        scenery.put_directory(disk, ROOT / "b")
        a, b = disk.find_directory(ROOT / "a"), disk.find_directory(ROOT / "b")
        disk.rename(a, "it", b, "it")
        if synced is not None:
            disk.sync(disk.find_directory(ROOT / synced))
        return disk

    before, after = {"a": None, "a/it": b"1", "b": None}, {"a": None, "b": None, "b/it": b"1"}
    assert distinct(make) == ([before, after] if synced is None else [after])


def test_changes_of_different_names_may_overtake_each_other_and_those_of_one_name_do_not():
    def make() -> SimDisk:
        disk = new_disk()
        directory = disk.find_directory(ROOT)
        disk.create(directory, "a", 0o600)
        disk.create(directory, "b", 0o600)
        disk.remove(directory, "a")
        disk.make_directory(directory, "a", 0o700)
        return disk

    # "a" as a file or, after that was removed, as a directory; with "b" and without it.
    found = distinct(make)
    assert sorted(map(sorted, (outcome.items() for outcome in found)), key=str) == sorted(
        ([*a, *b] for a in ([], [("a", b"")], [("a", None)]) for b in ([], [("b", b"")])), key=str
    )


def test_what_was_moved_into_a_new_directory_is_not_lost_with_it():
    def make() -> SimDisk:
        disk = new_disk()
        scenery.put_file(disk, ROOT / "old" / "precious", b"1")
        root = disk.find_directory(ROOT)
        new = disk.make_directory(root, "new", 0o700)
        old = disk.find_directory(ROOT / "old")
        disk.rename(old, "precious", new, "precious")
        disk.sync(new)
        disk.remove_directory(root, "old")
        return disk

    for found in distinct(make):
        assert b"1" in found.values(), found


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_directory_is_not_gone_before_what_was_moved_out_of_it_has_arrived(is_replaced: bool):
    def make() -> SimDisk:
        disk = new_disk()
        scenery.put_file(disk, ROOT / "old" / "precious", b"1")
        scenery.put_directory(disk, ROOT / "new")
        scenery.put_directory(disk, ROOT / "empty")
        root = disk.find_directory(ROOT)
        disk.rename(disk.find_directory(ROOT / "old"), "precious", disk.find_directory(ROOT / "new"), "precious")
        if is_replaced:
            disk.rename(root, "empty", root, "old")
        else:
            disk.remove_directory(root, "old")
        return disk

    found = distinct(make)
    assert len(found) == 3
    for outcome in found:
        assert b"1" in outcome.values(), outcome


def test_directories_that_are_moved_into_each_other_never_make_a_circle():
    def make() -> SimDisk:
        disk = new_disk()
        scenery.put_file(disk, ROOT / "p" / "precious", b"p")
        scenery.put_file(disk, ROOT / "q" / "precious", b"q")
        root, p, q = disk.find_directory(ROOT), disk.find_directory(ROOT / "p"), disk.find_directory(ROOT / "q")
        disk.rename(root, "p", q, "p")
        disk.rename(q, "p", root, "p")
        disk.rename(root, "q", p, "q")
        return disk

    for found in distinct(make):
        assert sorted(content for content in found.values() if content) == [b"p", b"q"], found


def test_a_tmpfs_loses_everything_and_what_was_counted_as_used_is_free():
    disk = new_disk()
    volume = disk.mount(ROOT, capacity_bytes=100, is_volatile=True)
    scenery.put_file(disk, ROOT / "it", b"1" * 60)
    assert volume.free_bytes == 40
    disk.lose_power(random.Random(1).randrange)
    assert scenery.snapshot(disk, ROOT) == {}
    assert volume.free_bytes == 100


def test_permissions_that_were_not_synced_may_be_the_old_ones():
    modes = set()
    for seed in range(20):
        disk = new_disk()
        node = scenery.put_file(disk, ROOT / "it")
        disk.change_mode(node, 0o600)
        disk.lose_power(random.Random(seed).randrange)
        modes.add(disk.find(ROOT / "it").mode)
    assert modes == {0o644, 0o600}


def test_the_same_choices_leave_the_same():
    def after(seed: int) -> list[tuple[str, Any]]:
        disk = new_disk()
        root = disk.find_directory(ROOT)
        for number in range(20):
            disk.append(disk.create(root, f"f{number}", 0o600), b"x" * number)
        disk.lose_power(random.Random(seed).randrange)
        return list(scenery.snapshot(disk, ROOT).items())

    assert all(after(seed) == after(seed) for seed in range(20))
    assert len({tuple(after(seed)) for seed in range(20)}) > 10


def cut_off(point: str, replace: Callable[[SimFiles], Awaitable[None]]) -> SimDisk:
    """A disk after a file on it was being replaced, as far as to this point."""
    disk = new_disk()
    scenery.put_file(disk, ROOT / "it", b"old")

    async def work(files: SimFiles) -> None:
        async def at(reached: str) -> None:
            if reached == point:
                files.fence()
                scope.cancel()

        files.at = at
        with anyio.CancelScope() as scope:
            await replace(files)

    run(work, disk)
    return disk


@pytest.mark.parametrize("point", ["created", "written", "synced", "renamed", "directory synced"])
def test_a_replacement_that_is_cut_off_anywhere_leaves_old_or_new(point: str):
    """By a kill and a power failure at once, with every choice there is."""

    def make() -> SimDisk:
        return cut_off(f"replace: {point}", lambda files: files.replace(ROOT / "it", b"new"))

    expected = {"renamed": {b"old", b"new"}, "directory synced": {b"new"}}.get(point, {b"old"})
    assert {found["it"] for found in distinct(make)} == expected


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("created", {b"old"}),
        ("written", {b"old"}),
        ("renamed", {b"old", b"", b"n", b"ne", b"new"}),
    ],
)
def test_a_replacement_for_this_boot_may_be_torn_by_a_power_failure(point: str, expected: set[bytes]):
    def make() -> SimDisk:
        disk = cut_off(f"replace_for_boot: {point}", lambda files: files.replace_for_boot(ROOT / "it", b"new"))
        assert scenery.snapshot(disk, ROOT)["it"] in {b"old", b"new"}
        return disk

    assert {found["it"] for found in distinct(make)} == expected


BOOT = NewDirectory({"below": NewDirectory(), "bin": NewDirectory({"it": NewFile(b"x", mode=0o755)}, mode=0o755)})


def test_of_what_is_for_this_boot_any_part_may_be_left_and_what_is_durable_beside_it_stays():
    def make() -> SimDisk:
        disk = new_disk()

        async def work(files: SimFiles) -> None:
            await files.make_tree(ROOT / "boot", BOOT)
            await files.replace(ROOT / "durable", b"1")

        run(work, disk)
        return disk

    found = distinct(make)
    kept = {frozenset(name for name in outcome if not name.endswith(".tmp")) for outcome in found}
    assert all(outcome["durable"] == b"1" for outcome in found)
    # The durable one's sync of the root brought the name of the directory with it.
    assert kept == {
        frozenset({"durable", "boot", *more})
        for more in ((), ("boot/below",), ("boot/bin",), ("boot/below", "boot/bin"))
    } | {frozenset({"durable", "boot", "boot/bin", "boot/bin/it", *more}) for more in ((), ("boot/below",))}
    assert {outcome.get("boot/bin/it") for outcome in found} == {None, b"", b"x"}


def test_what_nobody_syncs_is_written_out_in_the_kernels_own_time():
    disk = new_disk()
    root = disk.find_directory(ROOT)
    for number in range(6000):
        disk.create(root, f"f{number}", 0o600)
    assert len(root.changes) <= 4096
    disk.lose_power(lambda _: 0)
    assert "f0" in root.entries
    assert "f5999" not in root.entries


def test_a_replacement_without_its_sync_would_be_torn():
    """The model tells such a fault: here it is planted."""

    def make() -> SimDisk:
        disk = new_disk()
        scenery.put_file(disk, ROOT / "it", b"old")
        directory = disk.find_directory(ROOT)
        disk.append(disk.create(directory, ".it.tmp", 0o600), b"new")
        disk.rename(directory, ".it.tmp", directory, "it")
        disk.sync(directory)
        return disk

    assert {found["it"] for found in distinct(make)} == {b"", b"n", b"ne", b"new"}


@pytest.mark.parametrize("point", ["made", "linked", "synced", "renamed", "directory synced"])
def test_links_that_are_cut_off_anywhere_are_there_as_a_whole_or_not_at_all(point: str):
    """By a kill and a power failure at once, with every choice there is; and after it they can be made."""
    links = {"liba.so": "/lib/liba.so.1", "libb.so": "/lib/libb.so.1"}
    whole = {"lib": None, **{f"lib/{name}": target for name, target in links.items()}}

    def make() -> SimDisk:
        disk = new_disk()

        async def work(files: SimFiles) -> None:
            async def at(reached: str) -> None:
                if reached == f"make_links: {point}":
                    files.fence()
                    scope.cancel()

            files.at = at
            with anyio.CancelScope() as scope:
                await files.make_links(ROOT / "lib", links)

        run(work, disk)
        return disk

    found = [{name: each for name, each in outcome.items() if name[0] != "."} for outcome in distinct(make)]
    expected = {"renamed": [{}, whole], "directory synced": [whole]}.get(point, [{}])
    assert all(each in found for each in expected)
    assert all(each in expected for each in found)

    disk = make()
    disk.lose_power(random.Random(1).randrange)
    run(lambda files: files.make_links(ROOT / "lib", links), disk)
    assert whole.items() <= scenery.snapshot(disk, ROOT).items()


def test_a_root_that_was_made_is_durable():
    def make() -> SimDisk:
        disk = new_disk()

        async def work(_: SimFiles) -> None:
            files = SimFiles(disk, roots=[ROOT / "not" / "yet"], owner=object())
            await files.make_directory(ROOT / "not" / "yet")
            await files.append_durably(ROOT / "not" / "yet" / "it", b"1")

        run(work, disk)
        return disk

    assert distinct(make) == [{"not": None, "not/yet": None, "not/yet/it": b"1"}]
