"""A log that is as large as before its cut, and one that cannot be cut or looked at: tried again, not all the time."""

import errno
import os

import anyio
import pytest

from statemachine.states import State
from supervisor import log_files, log_keeping
from supervisor.container_logs import ContainerLogs
from supervisor.log_files import Cut
from tests.supervisor.log_benches import FILE_BYTES, a_bench

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    monkeypatch.setattr(log_files, "PACE_S", 0.001)


async def test_a_log_that_grows_back_to_the_size_it_had_before_its_cut_is_cut_again(tmp_path):
    async with a_bench(tmp_path, output=None) as bench:
        sizes_bytes = []

        async def cut(path, *, into, keep_bytes):
            await anyio.lowlevel.checkpoint()
            sizes_bytes.append(path.stat().st_size)
            path.rename(into)
            if len(sizes_bytes) == 1:
                bench.write(b"y" * FILE_BYTES + b"\n")
            return Cut(cut_bytes=sizes_bytes[-1], kept_bytes=sizes_bytes[-1])

        bench.files.cut = cut
        bench.settle()
        bench.write(b"x" * FILE_BYTES + b"\n")
        while len(sizes_bytes) < 2:
            await anyio.lowlevel.checkpoint()
        assert sizes_bytes == [FILE_BYTES + 1] * 2


async def test_after_a_cut_that_failed_offsets_are_true_whatever_became_of_what_was_kept_before(tmp_path):
    async with a_bench(tmp_path, output=None) as bench:
        bench.assignment()
        older = bench.path().with_name("main.log.1")
        older.write_bytes(b"older")
        bench.write(b"x" * FILE_BYTES + b"y")

        async def cut(_path, *, into, keep_bytes):
            await anyio.lowlevel.checkpoint()
            into.unlink()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        bench.files.cut = cut
        with pytest.raises(OSError):
            await bench.logs.bound("u1", "main", bench.files)
        piece = await bench.logs.read("u1", "main", offset_bytes=0, limit_bytes=2 * FILE_BYTES)
    assert (piece.offset_bytes, piece.data) == (len("older"), b"x" * FILE_BYTES + b"y")


async def test_a_log_that_cannot_be_cut_is_left_alone_for_a_while_and_the_other_ones_are_not(
    tmp_path, logs, monkeypatch
):
    monkeypatch.setattr(log_keeping, "REST_S", 3600.0)
    monkeypatch.setattr(log_keeping, "REST_S_MAX", 3600.0)
    async with a_bench(tmp_path) as bench:
        cut, tries = bench.files.cut, []

        async def cut_unless_main(path, *, into, keep_bytes):
            tries.append(path.name)
            if path == bench.path():
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return await cut(path, into=into, keep_bytes=keep_bytes)

        bench.files.cut = cut_unless_main
        bench.settle()
        for number in range(20):
            bench.write(b"%04d %s\n" % (number, b"x" * FILE_BYTES))
            bench.write(b"x" * FILE_BYTES + b"\n", "side")
            while bench.path("side").stat().st_size > FILE_BYTES:
                await anyio.lowlevel.checkpoint()
            await bench.output.until(lambda _lines, number=number: len(bench.messages()) > number)
        assert tries.count("main.log") == 1
        assert tries.count("side.log") >= 20
        bench.settle(State.FAILED)
        await bench.keeper.finish()
        assert tries.count("main.log") == 2  # a last time, whatever was before
    assert [entry["container"] for entry in logs if entry["event"] == "unwritten"] == ["main"] * 2


async def test_a_log_that_could_not_be_cut_is_tried_again_after_its_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(log_keeping, "REST_S", 0.0)
    async with a_bench(tmp_path, output=None) as bench:
        cut, tries = bench.files.cut, []

        async def cut_at_last(path, *, into, keep_bytes):
            tries.append(path.name)
            if len(tries) < 3:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return await cut(path, into=into, keep_bytes=keep_bytes)

        bench.files.cut = cut_at_last
        bench.settle()
        for number in range(1, 4):
            bench.write(b"x" * FILE_BYTES + b"\n")
            while len(tries) < number:
                await anyio.lowlevel.checkpoint()
        while bench.path().stat().st_size > FILE_BYTES:
            await anyio.lowlevel.checkpoint()
        assert len(tries) == 3


async def test_logs_that_cannot_be_looked_at_are_left_alone_for_a_while_and_looked_at_once_more_at_the_end(
    tmp_path, logs, monkeypatch
):
    looked, slept = [], []
    sleep = anyio.sleep

    async def changed(_directory, sizes):
        await anyio.lowlevel.checkpoint()
        looked.append(tuple(sizes))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def size(_self, _uid, name):
        await changed(None, [f"{name}.log"])

    async def sleep_at_once(length_s):
        slept.append(length_s)
        await (sleep(0) if len(slept) < 9 else anyio.sleep_forever())

    async with a_bench(tmp_path) as bench:
        bench.files.changed = changed
        monkeypatch.setattr(ContainerLogs, "size", size)
        monkeypatch.setattr(anyio, "sleep", sleep_at_once)
        bench.settle()
        bench.write(b"a\n")
        while len(slept) < 9:
            await anyio.lowlevel.checkpoint()
        bench.settle(State.FAILED)
        await bench.keeper.finish()
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert looked == [("main.log", "side.log")] * 9 + [("main.log",)]
    assert [entry["reason"] for entry in logs if entry["event"] == "unreadable"] == ["UnreadableFile"] * 10


def test_a_rest_is_twice_as_long_each_time_and_short_again_after_a_success():
    rest, found = log_keeping.Rest(), []
    assert rest.is_over(0.0)
    for _ in range(8):
        rest.begin(100.0)
        found.append(rest.end_s - 100.0)
        assert not rest.is_over(rest.end_s - 0.5)
        assert rest.is_over(rest.end_s)
    assert found == [1, 2, 4, 8, 16, 32, 60, 60]
    rest.end()
    assert rest.is_over(0.0)
    rest.begin(100.0)
    assert rest.end_s == 101.0
