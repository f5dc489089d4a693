"""The simulated Files: what the world can do to it that it cannot do to the real one."""

from __future__ import annotations

import errno
import itertools
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from sim.world import errors, scenery
from sim.world.disk import SimDisk
from sim.world.files import SimFiles
from sim.world.injection import Operation
from sim.world.nodes import Special
from supervisor.host.files import HostFiles
from tests.contract.operations import TREE

pytestmark = pytest.mark.anyio

ROOT: Final = Path("/state")
# Of one port call beside the scheduler; the budget of a slow machine, with neighbours.
CALL_LIMIT_S: Final = 50e-6


@pytest.fixture
def disk() -> SimDisk:
    ticks = itertools.count(1)
    made = SimDisk(now_ns=lambda: next(ticks))
    scenery.put_directory(made, ROOT)
    return made


def new_files(disk: SimDisk, at: Any = None) -> SimFiles:
    return SimFiles(disk, roots=[ROOT], owner=object(), at=at)


def test_errors_have_the_words_of_the_machine():
    for number in errors._TEXTS:
        assert str(errors.kernel_error(number, "/it")) == str(OSError(number, os.strerror(number), "/it"))


def test_the_simulated_port_has_all_methods_of_the_real_one():
    def methods(port: type) -> set[str]:
        return {name for name in vars(port) if not name.startswith("_")}

    assert methods(SimFiles) == methods(HostFiles) | {"fence"}


LINKS: Final = {"liba.so.1": "/lib/liba.so.1.2", "libb.so.1": "/lib/libb.so.1.2"}
EXPECTED: Final = {
    "replace": ["created", "written", "synced", "renamed", "directory synced"],
    "replace_for_boot": ["created", "written", "renamed"],
    "append": ["opened", "written", "directory synced"],
    "append_durably": ["opened", "written", "synced", "directory synced"],
    "make_directory": ["made", "synced", "made", "synced"],
    "make_links": ["made", "linked", "synced", "renamed", "directory synced"],
    "make_tree": [
        "made",
        "created new",
        "written new",
        "made open",
        "created open/run",
        "written open/run",
        "made bare",
        "renamed",
    ],
    "remove_tree": ["removed", "removed"],
    "lock": ["opened", "locked"],
}


@pytest.mark.parametrize("call", EXPECTED)
async def test_the_parts_of_an_operation_are_told_in_their_order(disk: SimDisk, anyio_backend: str, call: str):
    reached: list[str] = []

    async def at(point: str) -> None:
        reached.append(point)

    files = new_files(disk, at)
    arguments: list[Any] = [b"1"] if call.startswith(("replace", "append")) else []
    path = ROOT / "t"
    if call == "remove_tree":
        scenery.put_file(disk, path / "file")
    elif call.startswith("make_directory"):
        path /= "below"
    elif call == "make_links":
        arguments = [LINKS]
    elif call == "make_tree":
        arguments = [TREE]
    await getattr(files, call)(path, *arguments)
    assert reached == [f"{call}: {point}" for point in EXPECTED[call]]


@pytest.mark.parametrize(
    ("call", "point"),
    [
        ("replace", "created"),
        ("replace", "written"),
        ("replace", "synced"),
        ("replace_for_boot", "created"),
        ("replace_for_boot", "written"),
    ],
)
async def test_an_error_between_two_parts_is_cleaned_up_after(disk: SimDisk, anyio_backend: str, call: str, point: str):
    async def at(reached: str) -> None:
        if reached == f"{call}: {point}":
            raise OSError(errno.EIO, "broken")

    scenery.put_file(disk, ROOT / "it", b"old")
    with pytest.raises(OSError) as caught:
        await getattr(new_files(disk, at), call)(ROOT / "it", b"new")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(ROOT / "it"))
    assert scenery.snapshot(disk, ROOT) == {"it": b"old"}


@pytest.mark.parametrize("point", ["made", "linked", "synced"])
async def test_links_that_cannot_be_finished_are_cleaned_up_after(disk: SimDisk, anyio_backend: str, point: str):
    async def at(reached: str) -> None:
        if reached == f"make_links: {point}":
            raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError) as caught:
        await new_files(disk, at).make_links(ROOT / "lib", LINKS)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(ROOT / "lib"))
    assert scenery.snapshot(disk, ROOT) == {}


@pytest.mark.parametrize("point", EXPECTED["make_tree"][:-1])
async def test_a_tree_that_cannot_be_finished_is_cleaned_up_after(disk: SimDisk, anyio_backend: str, point: str):
    async def at(reached: str) -> None:
        if reached == f"make_tree: {point}":
            raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError) as caught:
        await new_files(disk, at).make_tree(ROOT / "tree", TREE)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(ROOT / "tree"))
    assert scenery.snapshot(disk, ROOT) == {}


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.WRITE, Operation.SYNC, Operation.RENAME])
async def test_an_error_that_is_asked_for_is_given_and_counted(disk: SimDisk, anyio_backend: str, operation: Operation):
    scenery.put_file(disk, ROOT / "it", b"old")
    injection = disk.fail(errno.EIO, lambda done, path: done is operation and path.startswith("/state/."), times_max=1)
    files = new_files(disk)
    await files.append(ROOT / "it", b"er")
    with pytest.raises(OSError) as caught:
        await files.replace(ROOT / "it", b"new")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(ROOT / "it"))
    assert injection.fired == 1
    assert scenery.snapshot(disk, ROOT) == {"it": b"older"}
    await files.replace(ROOT / "it", b"new")
    disk.heal(injection)
    assert scenery.snapshot(disk, ROOT) == {"it": b"new"}


async def test_a_cancelled_operation_is_done_whole(disk: SimDisk, anyio_backend: str):
    async def at(point: str) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        await new_files(disk, at).replace(ROOT / "it", b"new")
    assert scenery.snapshot(disk, ROOT) == {"it": b"new"}


async def test_the_dead_change_nothing_and_hold_nothing(disk: SimDisk, anyio_backend: str):
    async def at(point: str) -> None:
        if point == "replace: written":
            files.fence()

    files = new_files(disk, at)
    held = await files.lock(ROOT / "lock")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.replace, ROOT / "it", b"1")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(files.append, ROOT / "log", b"1")
        tasks.start_soon(files.stat, ROOT)
        await anyio.wait_all_tasks_blocked()
        found = scenery.snapshot(disk, ROOT)
        tasks.cancel_scope.cancel()
    # What was begun is left as it was, also when the tasks of the dead are cleared away.
    assert scenery.snapshot(disk, ROOT) == found
    assert found == {".it.0000000000000001.tmp": b"1", "lock": b""}
    again = await new_files(disk).lock(ROOT / "lock")
    held.close()
    with pytest.raises(BlockingIOError):
        await new_files(disk).lock(ROOT / "lock")
    again.close()


async def test_a_lock_on_a_file_that_is_replaced_meanwhile_is_on_the_new_one(disk: SimDisk, anyio_backend: str):
    reached: list[str] = []

    async def at(point: str) -> None:
        reached.append(point)
        if len(reached) == 1:
            disk.remove(disk.find_directory(ROOT), "lock")

    held = await new_files(disk, at).lock(ROOT / "lock")
    assert reached == ["lock: opened", "lock: opened", "lock: locked"]
    with pytest.raises(BlockingIOError):
        await new_files(disk).lock(ROOT / "lock")
    held.close()


async def test_a_directory_that_is_filled_all_the_time_is_an_error_in_the_end(disk: SimDisk, anyio_backend: str):
    scenery.put_file(disk, ROOT / "t" / "below" / "file")

    async def at(point: str) -> None:
        scenery.put_file(disk, ROOT / "t" / "below" / "more")

    with pytest.raises(OSError) as caught:
        await new_files(disk, at).remove_tree(ROOT / "t")
    assert caught.value.errno == errno.ENOTEMPTY


async def test_what_is_gone_meanwhile_is_fine(disk: SimDisk, anyio_backend: str):
    for number in range(5):
        scenery.put_file(disk, ROOT / "t" / str(number) / "file")

    async def at(point: str) -> None:
        """Removes what has become empty, before it is its turn."""
        for number in range(5):
            with suppress(OSError):
                disk.remove_directory(disk.find_directory(ROOT / "t"), str(number))

    await new_files(disk, at).remove_tree(ROOT / "t")
    assert scenery.snapshot(disk, ROOT) == {}


async def test_others_run_before_an_operation_and_not_within(disk: SimDisk, anyio_backend: str):
    seen: list[set[str]] = []

    async def look() -> None:
        while "last" not in (names := set(disk.find_directory(ROOT).entries)):
            seen.append(names)
            await anyio.lowlevel.checkpoint()

    files = new_files(disk)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        for name in ("a", "b", "last"):
            await files.replace(ROOT / name, b"1")
    assert any(seen)
    assert not any(name.endswith(".tmp") for names in seen for name in names)


def test_what_furnishes_a_world_is_durable(disk: SimDisk):
    scenery.put_file(disk, ROOT / "a" / "file", b"1", mode=0o640)
    scenery.put_file(disk, ROOT / "a" / "file", b"2", mode=0o640)
    scenery.put_symlink(disk, ROOT / "link", "a/file")
    scenery.put_special(disk, ROOT / "dev" / "nvidia0", Special.CHARACTER_DEVICE, device=(195, 0))
    before = scenery.snapshot(disk, Path("/"))
    disk.lose_power(random.Random(3).randrange)
    assert scenery.snapshot(disk, Path("/")) == before
    assert disk.find(ROOT / "link").mode == 0o640


def test_what_the_kernel_wrote_in_its_own_time_is_durable(disk: SimDisk):
    directory = disk.find_directory(ROOT)
    disk.append(disk.create(directory, "it", 0o600), b"1")
    disk.sync_all()
    disk.lose_power(random.Random(3).randrange)
    assert scenery.snapshot(disk, ROOT) == {"it": b"1"}


async def test_a_call_takes_little_of_the_budget(disk: SimDisk):
    files = new_files(disk)
    deep = ROOT / "actors" / "a1" / "snapshots" / "s1"
    await files.make_directory(deep)
    rounds = 2000

    async def work(number: int) -> None:
        await files.replace(deep / "status.json", b"{}")
        await files.append(deep / "journal", b"line\n")
        await files.append_durably(deep / "journal", b"line\n")
        await files.read(deep / "status.json", limit_bytes=100)
        await files.stat(deep / "status.json")
        await files.list_directory(deep)
        await files.remove_file(deep / f"absent{number}")

    async def wait() -> None:
        for _ in range(7):
            await anyio.lowlevel.checkpoint()

    costs = []
    for what in (work, lambda _: wait()):
        begin_s = time.process_time()
        for number in range(rounds):
            await what(number)
        costs.append((time.process_time() - begin_s) / rounds / 7)
    with_scheduler_s, scheduler_s = costs
    assert with_scheduler_s - scheduler_s < CALL_LIMIT_S, costs
