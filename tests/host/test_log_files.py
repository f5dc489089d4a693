"""Logs that containers hold open: told of writes at no cost, and cut at their beginning while they are written."""

import ctypes
import errno
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from supervisor.host import cutting, inotify, log_files, reading
from supervisor.host.beneath import Beneath
from supervisor.host.gathering import Gathering
from supervisor.host.log_files import open_log_files
from supervisor.log_files import PACE_S, Cut
from tests.host.waiting import eventually

pytestmark = pytest.mark.anyio

BLOCK = 4096
BOUND_S = 60.0


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def log(directory):
    return directory / "main.log"


@contextmanager
def appending(path):
    """As a sandbox holds it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        yield lambda data: os.write(fd, data)
    finally:
        os.close(fd)


@asynccontextmanager
async def told(opened, directory, sizes):
    """Something is to be told while the body runs; yields what then is true."""
    is_told = anyio.Event()

    async def wait():
        await opened.changed(directory, sizes)
        is_told.set()

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            yield is_told


def watches_of(opened):
    assert opened._inotify is not None
    return opened._inotify._waiting


def without_collapse(monkeypatch):
    """As on a file system that cannot take blocks out of a file."""

    def fallocate(*_arguments):
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(cutting, "_fallocate", fallocate)


# ---- being told


async def test_what_is_written_is_told_also_into_a_file_that_was_not_there(directory, log):
    async with open_log_files(roots=[directory]) as opened:
        async with told(opened, directory, {"main.log": 0}) as first:
            await anyio.wait_all_tasks_blocked()
            log.write_bytes(b"a")
        with appending(log) as write:
            async with told(opened, directory, {"main.log": 1}) as second:
                await anyio.wait_all_tasks_blocked()
                write(b"b")
        assert (first.is_set(), second.is_set()) == (True, True)


async def test_what_was_written_before_is_told_at_once(directory, log):
    log.write_bytes(b"abc")
    async with open_log_files(roots=[directory]) as opened:
        async with told(opened, directory, {"main.log": 2}) as is_told:
            pass
        assert is_told.is_set()


async def test_what_is_written_into_other_files_is_not_told(directory, log):
    async with open_log_files(roots=[directory]) as opened, anyio.create_task_group() as group:
        is_told = anyio.Event()

        async def wait():
            await opened.changed(directory, {"main.log": 0})
            is_told.set()

        group.start_soon(wait)
        for number in range(5):
            await anyio.wait_all_tasks_blocked()
            (directory / f"other-{number}").write_bytes(b"a")
        assert not is_told.is_set()
        log.write_bytes(b"a")
        with anyio.fail_after(BOUND_S):
            await is_told.wait()


async def test_several_who_wait_are_all_told(directory, log):
    async with (
        open_log_files(roots=[directory]) as opened,
        told(opened, directory, {"main.log": 0}) as one,
        told(opened, directory, {"main.log": 0}) as other,
    ):
        await anyio.wait_all_tasks_blocked()
        log.write_bytes(b"a")
    assert (one.is_set(), other.is_set()) == (True, True)


async def test_who_waits_no_more_leaves_no_watch_behind(directory):
    async with open_log_files(roots=[directory]) as opened:
        for _ in range(3):
            async with anyio.create_task_group() as group:
                group.start_soon(opened.changed, directory, {"main.log": 0})
                await eventually(lambda: watches_of(opened))
                group.cancel_scope.cancel()
            assert watches_of(opened) == {}


async def test_events_that_were_lost_wake_everybody(directory, log, monkeypatch):
    async with open_log_files(roots=[directory]) as opened, anyio.create_task_group() as group:
        group.start_soon(opened.changed, directory, {"main.log": 0})
        await eventually(lambda: watches_of(opened))
        monkeypatch.setattr(inotify, "_watches", lambda _told: iter([-1]))
        events = [each for waiting in watches_of(opened).values() for each in waiting]
        (written,) = events
        (directory / "other").write_bytes(b"a")  # which makes it read
        with anyio.fail_after(BOUND_S):
            await written.wait()
        assert [each.is_set() for each in events] == [True]
        group.cancel_scope.cancel()


def test_what_is_written_between_two_beats_is_told_at_the_next_one_together(tmp_path):
    """So a hundred actors that write now and then wake the worker no more often than one."""
    clock, directories = MockClock(), [tmp_path / "one", tmp_path / "other"]

    async def measured():
        async with inotify.open_inotify() as opened, anyio.create_task_group() as group:
            assert opened is not None
            group.start_soon(opened.tell)
            with opened.armed(directories[0]) as first:
                (directories[0] / "a").touch()
                await first.wait()  # after a silence, at once
            with opened.armed(directories[0]) as one, opened.armed(directories[1]) as other:
                for directory in directories:
                    (directory / "b").touch()
                await trio.testing.wait_all_tasks_blocked()
                assert (one.is_set(), other.is_set()) == (False, False)
                clock.jump(PACE_S)
                await trio.testing.wait_all_tasks_blocked()
                assert (one.is_set(), other.is_set()) == (True, True)
            group.cancel_scope.cancel()

    for directory in directories:
        directory.mkdir()
    trio.run(measured, clock=clock)


async def test_who_waits_for_what_cannot_be_looked_at_is_told_why(directory, monkeypatch):
    def look_at(*_arguments, **_options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(reading, "look_at", look_at)
    async with open_log_files(roots=[directory]) as opened:
        with pytest.raises(OSError) as caught:
            await opened.changed(directory, {"main.log": 0})
    assert caught.value.errno == errno.EIO
    assert opened.size_bytes(directory / "main.log") == 0


@pytest.mark.parametrize("missing", ["instance", "directory"])
async def test_where_nothing_can_be_watched_it_is_looked_at_from_time_to_time(directory, log, monkeypatch, missing):
    monkeypatch.setattr(log_files, "_LOOK_AGAIN_S", 0.01)
    async with open_log_files(roots=[directory]) as opened:
        if missing == "instance":
            opened._inotify = None
        else:
            directory.rmdir()
        async with told(opened, directory, {"main.log": 0}) as is_told:
            await anyio.wait_all_tasks_blocked()
            directory.mkdir(exist_ok=True)
            log.write_bytes(b"a")
        assert is_told.is_set()


def test_where_nothing_can_be_watched_all_directories_are_looked_at_at_once(tmp_path):
    """A node that has no watches left wakes the worker as often for a hundred actors as for one."""
    looked_s = set()

    class Looks(Gathering):
        async def run(self, _look):
            looked_s.add(trio.current_time())
            await trio.lowlevel.checkpoint()
            return {"main.log": 0}

    async def measured():
        files = log_files.HostLogFiles(Beneath([tmp_path]), None, Looks())
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(files.changed, tmp_path / str(number), {"main.log": 0})
                await trio.sleep(0.03)
            looked_s.clear()
            await trio.sleep(10)
            nursery.cancel_scope.cancel()

    trio.run(measured, clock=MockClock(autojump_threshold=0))
    assert 9 <= len(looked_s) <= 11


# ---- cutting


def cut(log, keep_bytes=1 << 20):
    return cutting.cut(Beneath([log.parent]), log, log.with_name("main.log.1"), keep_bytes)


def collapsed(fd, _mode, offset, count):
    """What ext4 and XFS do in one step, where the file system of the tests cannot."""
    rest = os.pread(fd, 1 << 30, offset + count)
    os.pwrite(fd, rest, offset)
    os.ftruncate(fd, offset + len(rest))
    return 0


@pytest.fixture
def able(log, monkeypatch):
    """The file system can take blocks out of a file, or seems to; returns whether it really can."""
    log.write_bytes(bytes(2 * BLOCK))
    is_able = not cut(log).may_have_lost
    log.unlink()
    log.with_name("main.log.1").unlink()
    if not is_able:
        monkeypatch.setattr(cutting, "_fallocate", collapsed)
    return is_able


def test_a_cut_moves_whole_blocks_and_leaves_the_rest_and_the_writer_goes_on(log, able):
    older = log.with_name("main.log.1")
    older.write_bytes(b"something from before")
    head = b"".join(b"%07d\n" % number for number in range(1024))  # two blocks
    with appending(log) as write:
        write(head + b"the rest")
        assert cut(log) == Cut(cut_bytes=2 * BLOCK, kept_bytes=2 * BLOCK)
        write(b" and more")
    assert (older.read_bytes(), log.read_bytes()) == (head, b"the rest and more")
    assert sorted(path.name for path in log.parent.iterdir()) == ["main.log", "main.log.1"]


def test_of_what_is_cut_only_the_newest_is_kept(log, able):
    log.write_bytes(b"a" * BLOCK + b"b" * BLOCK + b"c")
    assert cut(log, keep_bytes=100) == Cut(cut_bytes=2 * BLOCK, kept_bytes=100)
    assert log.with_name("main.log.1").read_bytes() == b"b" * 100


@pytest.mark.parametrize("size_bytes", [0, 1, BLOCK])
def test_less_than_a_block_and_a_byte_is_not_cut(log, size_bytes):
    log.write_bytes(b"a" * size_bytes)
    assert cut(log) == Cut(cut_bytes=0, kept_bytes=0)
    assert log.stat().st_size == size_bytes


def test_where_no_beginning_can_be_cut_all_is_copied_and_the_file_cut_to_nothing(log, monkeypatch):
    without_collapse(monkeypatch)
    with appending(log) as write:
        write(b"a" * BLOCK + b"the rest")
        assert cut(log) == Cut(cut_bytes=BLOCK + 8, kept_bytes=BLOCK + 8, may_have_lost=True)
        write(b"more")
    assert log.with_name("main.log.1").read_bytes() == b"a" * BLOCK + b"the rest"
    assert log.read_bytes() == b"more"


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("can_collapse", [True, False])
def test_a_full_disk_keeps_no_log_from_being_cut(log, able, monkeypatch, at, can_collapse):
    if not can_collapse:
        without_collapse(monkeypatch)
    calls, sendfile = [], os.sendfile

    def full(*arguments):
        calls.append(1)
        if len(calls) >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return sendfile(*arguments)

    monkeypatch.setattr(os, "sendfile", full)
    log.write_bytes(b"a" * BLOCK + b"b")
    log.with_name("main.log.1").write_bytes(b"older")
    found = cut(log)
    assert found.cut_bytes >= BLOCK
    assert log.stat().st_size <= 1
    older = log.with_name("main.log.1")
    assert found.kept_bytes == (older.stat().st_size if older.exists() else 0)
    assert not [path for path in log.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("can_collapse", [True, False])
def test_after_a_cut_that_failed_all_stands_in_the_file_and_none_of_it_is_kept_beside_it_as_well(
    log, monkeypatch, can_collapse
):
    def fails(*_arguments):
        ctypes.set_errno(errno.EIO)
        if can_collapse:
            return -1
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if can_collapse:
        monkeypatch.setattr(cutting, "_fallocate", fails)
    else:
        without_collapse(monkeypatch)
        monkeypatch.setattr(os, "ftruncate", fails)
    log.write_bytes(b"a" * BLOCK + b"b")
    log.with_name("main.log.1").write_bytes(b"older")
    with pytest.raises(OSError) as caught:
        cut(log)
    assert caught.value.errno == errno.EIO
    assert log.read_bytes() == b"a" * BLOCK + b"b"
    assert [path.name for path in log.parent.iterdir()] == ["main.log"]


def test_a_cut_that_a_signal_broke_off_is_done_again(log, able, monkeypatch):
    calls, fallocate = [], cutting._fallocate

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 1:
            return fallocate(*arguments)
        ctypes.set_errno(errno.EINTR)
        return -1

    monkeypatch.setattr(cutting, "_fallocate", interrupted)
    log.write_bytes(b"a" * BLOCK + b"b")
    assert cut(log) == Cut(cut_bytes=BLOCK, kept_bytes=BLOCK)


def test_what_is_no_regular_file_of_ours_is_not_cut(log, tmp_path):
    (tmp_path / "other").write_bytes(b"a" * 3 * BLOCK)
    log.symlink_to(tmp_path / "other")
    with pytest.raises(OSError) as caught:
        cut(log)
    assert caught.value.errno == errno.ELOOP
    log.unlink()
    log.mkdir()
    with pytest.raises(OSError):
        cut(log)
    assert (tmp_path / "other").stat().st_size == 3 * BLOCK


def test_nothing_is_lost_or_said_twice_while_somebody_writes_as_fast_as_he_can(log, able, monkeypatch):
    if not able:
        without_collapse(monkeypatch)  # which may lose something, and tells so
    written = b"".join(b"%07d\n" % number for number in range(60_000))
    seen = b""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(log)])
    try:
        while writer.poll() is None:
            if log.exists() and cut(log).cut_bytes:
                seen += log.with_name("main.log.1").read_bytes()
    finally:
        writer.kill()
        writer.wait()
    found = (seen + log.read_bytes()).splitlines()
    assert found == written.splitlines() if able else found == sorted(set(found))


WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(60_000):
    os.write(fd, b"%07d\\n" % number)
"""
