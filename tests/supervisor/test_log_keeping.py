"""Containers' logs are bounded and told, whatever containers write and whoever reads our stdout (case 039)."""

import errno
import json
import os
from collections import Counter

import anyio
import pytest

from statemachine.states import State
from supervisor import log_files, log_keeping, log_relay
from supervisor.container_logs import ContainerLogs
from supervisor.host.files import HostFiles
from supervisor.log_files import Cut
from tests.supervisor.log_benches import BOUND_S, FILE_BYTES, a_bench

pytestmark = pytest.mark.anyio

GCE = "logging.googleapis.com/labels"


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    monkeypatch.setattr(log_files, "PACE_S", 0.001)


async def test_case_039_every_line_is_one_object_that_says_whose_it_is_and_none_says_another(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.settle(State.CREATING)
        forged = {"ate.dev/actor_uid": "victim", "team": "x"}
        written = [
            json.dumps({"labels": forged, "message": "m1"}).encode(),
            b'{"message":"m2"} garbage',
            b'[{"labels":{"ate.dev/actor_uid":"victim"}}]',
            b"nul \0 and no utf-8 \xff",
            b'{"message":"m3","n":12345678901234567890}',
            b'{"message":"m4","labels":"ate.dev/actor_uid=victim"}',
            json.dumps({GCE: forged, "message": "m5"}).encode(),
        ]
        bench.write(b"\n".join(written) + b"\nwithout an end")
        bench.write(b"of the other\n", "side")
        bench.settle(State.FAILED)
        await bench.keeper.finish()
        lines = bench.output.lines
    assert len(lines) == len(written) + 2
    for line in lines:
        assert line["labels"]["ate.dev/actor_uid"] == "u1"
        assert line["labels"]["ate.dev/actor_name"] == "u1-name"
        assert line["labels"]["ate.dev/actor_atespace"] == "team-a"
        assert line["labels"]["ate.dev/container_name"] in {"main", "side"}
        assert line.get(GCE, {}) in ({}, {"team": "x"})
    assert bench.messages() == [
        "m1", written[1].decode(), written[2].decode(), "nul \0 and no utf-8 \\xff", "m3", written[5].decode(), "m5",
        "without an end",
    ]  # fmt: skip
    assert bench.messages("side") == ["of the other"]
    assert next(line["labels"]["team"] for line in lines if line["message"] == "m1") == "x"
    assert b'"n":12345678901234567890' in bench.output.taken


async def test_what_is_written_while_it_runs_is_told_as_soon_as_its_line_has_an_end(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.settle()
        bench.write(b"first\nsec")
        await bench.output.until(lambda lines: len(lines) == 1)
        bench.write(b"ond\n")
        await bench.output.until(lambda lines: len(lines) == 2)
        assert bench.messages() == ["first", "second"]


async def test_a_line_that_is_too_long_is_told_in_parts_that_say_so_and_no_character_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(log_relay, "PIECE_BYTES", 32)
    monkeypatch.setattr(log_relay, "LINE_BYTES_MAX", 64)
    async with a_bench(tmp_path) as bench:
        bench.settle()
        long = "aé" * 50
        bench.write(b"short\n" + long.encode() + b"\n" + b"b" * 64 + b"\nshort\n" + b"c" * 70)
        bench.settle(State.FAILED)
        await bench.keeper.finish()
        found = [(line["message"], line.get("part"), line.get("more")) for line in bench.output.lines]
    parts = [message for message, part, _ in found[1:4] if part]
    assert "".join(parts) == long
    assert [each[1:] for each in found] == [
        (None, None), (1, True), (2, True), (3, False), (1, True), (2, False), (None, None), (1, True), (2, False),
    ]  # fmt: skip


async def test_a_million_bytes_in_one_line_are_all_told(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.logs.file_bytes_max = 1 << 24
        bench.settle()
        bench.write(b"x" * 1_000_000 + b"\nafter\n")
        lines = await bench.output.until(lambda lines: lines and lines[-1]["message"] == "after")
    assert "".join(line["message"] for line in lines[:-1]) == "x" * 1_000_000


async def test_lines_that_are_all_empty_are_told_a_few_at_a_time_and_none_is_lost(tmp_path):
    """Each costs a whole object: were a piece of them told at once, the loop would stand still meanwhile."""
    most = 0
    async with a_bench(tmp_path) as bench:
        write = bench.output.write

        async def counted(lines):
            nonlocal most
            most = max(most, lines.count(b"\n"))
            await write(lines)

        bench.output.write = counted
        bench.settle()
        bench.write(b"\n" * 5_000 + b"after\n")
        bench.settle(State.FAILED)
        await bench.keeper.finish()
        assert bench.messages() == [""] * 5_000 + ["after"]
    assert most == log_relay.LINES_MAX


async def test_lines_of_before_are_not_told_again_and_those_of_the_next_activation_are(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.assignment()
        bench.write(b"of an earlier life\n")
        for number in range(3):
            bench.settle()
            bench.write(b"%d\nno end" % number)
            bench.settle(State.SUSPENDED)
            await bench.keeper.finish()
        assert bench.messages() == ["0", "no end", "1", "no end", "2", "no end"]


async def test_a_log_is_cut_while_it_is_written_and_every_line_is_told_once(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.settle()
        for number in range(100):
            bench.write(b"%04d %s\n" % (number, b"x" * 4000))
            await bench.output.until(lambda lines, number=number: len(lines) > number)
        assert [message[:4] for message in bench.messages()] == [f"{number:04d}" for number in range(100)]
        assert bench.size() < 3 * FILE_BYTES


async def test_a_stdout_that_nobody_reads_lets_logs_be_cut_and_what_was_dropped_is_counted(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.settle()
        bench.output.is_open = anyio.Event()
        bench.write(b"first\n")
        written = 6
        for number in range(100):
            bench.write(b"%04d %s\n" % (number, b"x" * 4000))
            written += 4006
            with anyio.fail_after(BOUND_S):
                while bench.path().stat().st_size > FILE_BYTES:
                    await anyio.lowlevel.checkpoint()
        assert bench.size() < 3 * FILE_BYTES
        bench.output.is_open.set()
        bench.settle(State.FAILED)
        await bench.keeper.finish()
        lines = bench.output.lines
    assert bench.messages()[-1].startswith("0099 ")
    dropped = sum(line.get("dropped_bytes", 0) for line in lines)
    told = sum(len(line["message"]) + 1 for line in lines if "dropped_bytes" not in line)
    assert dropped > 200_000
    assert dropped + told == written


async def test_what_one_container_writes_keeps_no_other_one_from_being_told(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.logs.file_bytes_max = 1 << 24
        for uid in ("u1", "u2"):
            bench.settle(uid=uid)
        bench.output.is_open = anyio.Event()
        bench.write(b"much\n" * 500_000)
        bench.write(b"little\n", uid="u2")
        bench.output.is_open.set()
        await bench.output.until(lambda _lines: bench.messages(uid="u2"))
        assert bench.messages(uid="u2") == ["little"]
        assert len(bench.messages()) < 500_000


async def test_a_stdout_that_is_closed_stops_the_telling_and_nothing_else(tmp_path, logs):
    async with a_bench(tmp_path) as bench:
        bench.output.error = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        bench.settle()
        bench.write(b"first\n")
        for number in range(60):
            bench.write(b"%04d %s\n" % (number, b"x" * 4000))
        while bench.path().stat().st_size > FILE_BYTES:
            await anyio.lowlevel.checkpoint()
        bench.settle(State.FAILED)
        await bench.keeper.finish()
    # Where the file system cannot cut a file at its beginning that is told as well.
    told = [(entry["event"], entry.get("reason")) for entry in logs if entry["event"] != "log_cut"]
    assert told == [("unwritten", "OutputUnwritable")]


async def test_without_an_output_logs_are_kept_within_bounds_all_the_same(tmp_path):
    async with a_bench(tmp_path, output=None) as bench:
        bench.settle()
        bench.write(b"x" * 3 * FILE_BYTES)
        while bench.path().stat().st_size > FILE_BYTES:
            await anyio.lowlevel.checkpoint()
        assert bench.size() < 3 * FILE_BYTES
        bench.settle(State.TERMINATED)
        await bench.keeper.finish()


async def test_what_is_written_at_the_very_end_is_bounded_as_well(tmp_path, monkeypatch):
    async with a_bench(tmp_path) as bench:

        async def changed(_directory, _sizes):
            await anyio.sleep_forever()

        monkeypatch.setattr(bench.files, "changed", changed)
        bench.settle()
        await anyio.wait_all_tasks_blocked()
        bench.write(b"x" * FILE_BYTES + b"\n" + b"y" * FILE_BYTES + b"\n")
        bench.settle(State.TERMINATED)
        await bench.keeper.finish()
        assert bench.path().stat().st_size <= FILE_BYTES
        assert "".join(bench.messages()) == "x" * FILE_BYTES + "y" * FILE_BYTES


async def test_a_log_that_cannot_be_cut_is_told_and_its_lines_as_well(tmp_path, logs):
    async with a_bench(tmp_path) as bench:

        async def cut(_path, *, into, keep_bytes):
            await anyio.lowlevel.checkpoint()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        bench.files.cut = cut
        bench.settle()
        bench.write(b"x" * FILE_BYTES + b"\n")
        await bench.output.until(len)
        bench.settle(State.FAILED)
        await bench.keeper.finish()
    assert {(entry["event"], entry["container"], entry["reason"]) for entry in logs} == {
        ("unwritten", "main", "StateUnwritable")
    }


async def test_where_a_cut_may_have_lost_something_it_is_told(tmp_path, logs):
    async with a_bench(tmp_path) as bench:

        async def cut(path, *, into, keep_bytes):
            await anyio.lowlevel.checkpoint()
            size_bytes = path.stat().st_size
            path.rename(into)
            return Cut(cut_bytes=size_bytes, kept_bytes=size_bytes, may_have_lost=True)

        bench.files.cut = cut
        bench.settle()
        bench.write(b"x" * FILE_BYTES + b"\n")
        await bench.output.until(len)
        while not logs:
            await anyio.lowlevel.checkpoint()
    assert [(entry["event"], entry["actor"], entry["container"]) for entry in logs] == [("log_cut", "u1", "main")]


@pytest.fixture
def faults(monkeypatch):
    """A fault of ours whenever a log of one of these actors is to be cut; how often that came."""
    found, bound = Counter[str](), ContainerLogs.bound

    async def faulty(self, uid, *rest):
        if uid in found:
            found[uid] += 1
            raise KeyError("a fault of ours")
        return await bound(self, uid, *rest)

    monkeypatch.setattr(ContainerLogs, "bound", faulty)
    return found


async def test_a_fault_of_ours_costs_one_actors_lines_and_nobody_else_anything(tmp_path, logs, faults):
    async with a_bench(tmp_path) as bench:
        faults["u2"] = 0
        for uid in ("u1", "u2"):
            bench.settle(uid=uid)
        bench.write(b"x" * FILE_BYTES + b"\n", uid="u2")
        while not faults["u2"]:
            await anyio.lowlevel.checkpoint()
        bench.settle(State.FAILED, uid="u2")
        while "u2" in bench.keeper.untold:
            await anyio.lowlevel.checkpoint()
        bench.write(b"b\n")
        await bench.output.until(lambda _lines: bench.messages())
    assert {(entry["event"], entry["actor"]) for entry in logs} == {("fault", "u2")}


async def test_after_a_fault_of_ours_the_logs_of_an_actor_that_lives_on_are_bounded_and_told_again(
    tmp_path, logs, faults, monkeypatch
):
    monkeypatch.setattr(log_keeping, "REST_S", 0.001)
    async with a_bench(tmp_path) as bench:
        faults["u1"] = 0
        bench.settle()
        bench.write(b"x" * FILE_BYTES + b"\n")
        while faults["u1"] < 2:
            await anyio.lowlevel.checkpoint()
        del faults["u1"]
        while bench.path().stat().st_size > FILE_BYTES:
            await anyio.lowlevel.checkpoint()
        bench.write(b"b\n")
        await bench.output.until(lambda _lines: "b" in bench.messages())
    assert {(entry["event"], entry["actor"]) for entry in logs} == {("fault", "u1")}


async def test_who_lives_again_while_its_last_lines_wait_loses_none(tmp_path):
    async with a_bench(tmp_path) as bench:
        bench.settle()
        bench.output.is_open = anyio.Event()
        bench.write(b"a\n")
        bench.settle(State.SUSPENDED)
        await anyio.wait_all_tasks_blocked()
        bench.settle(State.RESTORING)
        bench.write(b"b\n")
        bench.output.is_open.set()
        await bench.output.until(lambda lines: len(lines) == 2)
        bench.settle(State.FAILED)
        await bench.keeper.finish()
        assert bench.messages() == ["a", "b"]


async def test_an_offset_stays_true_over_cuts_and_what_is_gone_is_told_by_where_there_is_something(tmp_path):
    async with a_bench(tmp_path, output=None) as bench:
        bench.assignment()
        whole = b"".join(b"%07d\n" % number for number in range(20_000))
        bench.write(whole[:100_000])
        await bench.logs.bound("u1", "main", bench.files)
        bench.write(whole[100_000:])
        piece = await bench.logs.read("u1", "main", offset_bytes=0, limit_bytes=1 << 20)
        assert whole[piece.offset_bytes :] == piece.data
        assert 0 < piece.offset_bytes < 100_000 < piece.next_bytes == piece.end_bytes == len(whole)
        for offset in (50_000, 99_999, 100_000, 159_999, 160_000, 200_000):
            piece = await bench.logs.read("u1", "main", offset_bytes=offset, limit_bytes=64)
            assert piece.data == whole[offset : offset + 64]
        # To a worker that comes later the older file is where it begins.
        later = ContainerLogs(HostFiles(roots=[tmp_path]), bench.state_dir, FILE_BYTES)
        piece = await later.read("u1", "main", offset_bytes=0, limit_bytes=1 << 20)
        assert (piece.offset_bytes, whole.endswith(piece.data), len(piece.data)) == (0, True, bench.size())
