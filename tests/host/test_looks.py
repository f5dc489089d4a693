"""Looks that hang: who is cancelled comes back at once, their threads stay bounded, and no write waits for them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from actors.ports import CgroupLimits
from supervisor.host import cgroups, reading
from supervisor.host.files import HostFiles
from supervisor.host.looks import Looks
from tests.host.cgroup_trees import RecordedTree
from tests.host.waiting import eventually

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


class Hanging:
    """What a disk does that hangs: whoever looks stays in his thread until `release`."""

    def __init__(self):
        self._released = threading.Event()
        self._lock = threading.Lock()
        self.begun = 0

    def __call__(self, *_args, **_options):
        with self._lock:
            self.begun += 1
        assert self._released.wait(PATIENCE_S)
        return 7

    def release(self):
        self._released.set()


@contextmanager
def hanging():
    disk = Hanging()
    try:
        yield disk
    finally:
        disk.release()


async def left_behind(ask, disk):
    """Ask, and be cancelled once the thread hangs. Comes back although it still does."""
    before = disk.begun
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await eventually(lambda: disk.begun > before, within_s=PATIENCE_S)
            group.cancel_scope.cancel()


async def test_who_is_cancelled_leaves_a_look_behind_and_its_place_is_taken_until_it_has_ended():
    looks = Looks(2)
    with hanging() as disk:
        for _ in range(2):
            await left_behind(lambda: looks.run(disk), disk)
        for _ in range(5):  # nor does any further one begin
            with anyio.move_on_after(0.01) as scope:
                await looks.run(disk)
            assert scope.cancelled_caught
        assert disk.begun == 2
        disk.release()
        with anyio.fail_after(PATIENCE_S):
            assert await looks.run(disk) == 7
    assert disk.begun == 3


async def test_who_waits_for_a_place_gets_it_when_what_was_left_behind_ends():
    looks = Looks(1)
    found = []

    async def look():
        found.append(await looks.run(lambda: 8))

    with hanging() as disk, anyio.fail_after(PATIENCE_S):
        await left_behind(lambda: looks.run(disk), disk)
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            group.start_soon(look)
            # The other one has come further.
            await eventually(lambda: looks._callers.statistics().tasks_waiting == 1, within_s=PATIENCE_S)
            assert found == []
            disk.release()
    assert found == [8, 8]


async def test_what_a_look_raises_is_raised_and_gives_its_place_back():
    looks = Looks(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await looks.run(lambda: 1 // 0)


async def test_a_look_whose_caller_was_cancelled_before_it_began_takes_no_place():
    looks = Looks(1)
    with hanging() as disk:
        for _ in range(3):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await looks.run(disk)
        assert disk.begun == 0
        with anyio.fail_after(PATIENCE_S):
            assert await looks.run(lambda: 9) == 9


LOOKS = {
    "read_from": ("read_from", lambda files, path: files.read_from(path, offset_bytes=0, limit_bytes=1)),
    "stat": ("look_at", lambda files, path: files.stat(path)),
    "free_bytes": ("free_bytes", lambda files, path: files.free_bytes(path)),
}


@pytest.mark.parametrize("name", LOOKS)
async def test_a_deadline_around_a_look_holds_while_the_disk_hangs_and_no_write_waits_for_it(
    files: HostFiles, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    blocking, look = LOOKS[name]
    with hanging() as disk, monkeypatch.context() as patch:
        patch.setattr(reading, blocking, disk)
        places = files._room_looks if name == "free_bytes" else files._looks
        for _ in range(places._places):
            await left_behind(lambda: look(files, root), disk)
        with anyio.move_on_after(0.01) as scope:
            await look(files, root)
        assert scope.cancelled_caught
        assert disk.begun == places._places
        with anyio.fail_after(PATIENCE_S):
            await files.replace(root / "it", b"written")
            assert await files.read(root / "it", limit_bytes=10) == b"written"


async def test_how_much_room_there_is_takes_no_place_of_another_look(
    files: HostFiles, root: Path, monkeypatch: pytest.MonkeyPatch
):
    with hanging() as disk, anyio.fail_after(PATIENCE_S), monkeypatch.context() as patch:
        patch.setattr(reading, "free_bytes", disk)
        for _ in range(files._room_looks._places):
            await left_behind(lambda: files.free_bytes(root), disk)
        assert await files.stat(root) is not None


WAITED_FOR = {
    "read": ("read", lambda files, path: files.read(path, limit_bytes=1)),
    "list_directory": ("list_directory", lambda files, path: files.list_directory(path)),
}


@pytest.mark.parametrize("name", WAITED_FOR)
async def test_every_other_call_is_waited_for_although_it_was_cancelled(
    files: HostFiles, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    blocking, call = WAITED_FOR[name]
    is_back = []

    async def ask():
        try:
            await call(files, root)
        finally:
            is_back.append(True)

    with hanging() as disk, anyio.fail_after(PATIENCE_S), monkeypatch.context() as patch:
        patch.setattr(reading, blocking, disk)
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await eventually(lambda: disk.begun, within_s=PATIENCE_S)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
            assert is_back == []
            disk.release()
    assert is_back == [True]


@pytest.mark.parametrize(
    ("blocking", "look"),
    [("_usage", lambda port: port.usage("a1.x")), ("_names", lambda port: port.names())],
    ids=["usage", "names"],
)
async def test_usage_and_names_are_left_behind_and_no_cgroup_waits_for_them(tmp_path, monkeypatch, blocking, look):
    port = RecordedTree(tmp_path / "cgroup").port
    await port.delegate()
    with hanging() as disk, monkeypatch.context() as patch:
        patch.setattr(cgroups, blocking, disk)
        for _ in range(port._looks._places):
            await left_behind(lambda: look(port), disk)
        with anyio.move_on_after(0.01) as scope:
            await look(port)
        assert scope.cancelled_caught
        with anyio.fail_after(PATIENCE_S):
            await port.make("a1.x", leaves=("sandbox",), limits=CgroupLimits())
            await port.remove("a1.x", deadline_s=PATIENCE_S)
