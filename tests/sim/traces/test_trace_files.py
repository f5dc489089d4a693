"""Trace files: what is written is read again, what is wrong is refused with its line, and length costs no memory."""

import gzip
import importlib
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from sim.traces import streams
from sim.traces.reading import read_trace
from sim.traces.records import Assignment, Container, FaultRecord, Header, Record, Resume, Suspend, WorkerAdd
from sim.traces.streams import LINE_BYTES_MAX
from sim.traces.writing import as_bytes, write_trace
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.sim.traces.any_records import HEADERS, TRACES

HEADER = Header(source="a test")
ZSTD = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
LINE = b'{"kind":"GreenroomTrace","v":1,"source":"a test"}\n'
SUFFIXES = ["jsonl", "jsonl.gz", "jsonl.zst", "jsonl.zstd"]
in_one_directory = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refusal(path, data):
    """Why a file with this content is refused."""
    path.write_bytes(data)
    with pytest.raises(ProblemError) as refused:
        list(read_trace(path)[1])
    (problem,) = refused.value.problems
    return problem


@pytest.mark.parametrize("suffix", SUFFIXES)
@in_one_directory
@given(header=HEADERS, records=TRACES)
def test_what_is_written_is_read_again_as_it_was(tmp_path, suffix, header, records):
    path = tmp_path / f"any.{suffix}"
    assert write_trace(path, header, records) == len(records)
    found, read = read_trace(path)
    assert (found, list(read)) == (header, records)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_records_make_the_same_bytes_under_any_name(tmp_path, suffix):
    records = [Resume(at_s=at_s, actor="a") for at_s in range(3000)]
    paths = [tmp_path / f"one.{suffix}", tmp_path / f"another.{suffix}"]
    for path in paths:
        write_trace(path, HEADER, records)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_compressed_trace_can_be_unpacked_by_anybody(tmp_path):
    records = [Suspend(at_s=1, actor="a")]
    for name in ("t.jsonl", "t.jsonl.gz", "t.jsonl.zst"):
        write_trace(tmp_path / name, HEADER, records)
    plain = (tmp_path / "t.jsonl").read_bytes()
    assert plain == as_bytes(HEADER, records)
    assert gzip.decompress((tmp_path / "t.jsonl.gz").read_bytes()) == plain
    assert ZSTD.decompress((tmp_path / "t.jsonl.zst").read_bytes()) == plain


def test_what_a_field_is_by_itself_is_not_written():
    lines = as_bytes(HEADER, [Assignment(at_s=0.0, actor="a"), WorkerAdd(at_s=0.0, worker="w")]).splitlines()
    assert lines[1:] == [
        b'{"event":"assignment","at_s":0.0,"actor":"a"}',
        b'{"event":"worker-add","at_s":0.0,"worker":"w"}',
    ]


def test_an_assignment_says_what_it_claims_and_of_which_models():
    containers = (Container(name="a", gpus=2), Container(name="b"), Container(name="c", gpus=1))
    assert Assignment(at_s=0, actor="a", containers=containers).gpus == 3
    assert Assignment(at_s=0, actor="a", model="V100M16|V100M32").models == ("V100M16", "V100M32")
    assert Assignment(at_s=0, actor="a").models == ()
    assert Assignment(at_s=0, actor="a", model="V100|").models == ("V100",)  # and no worker without a model


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"event":"suspend","at_s":1,"actor":"a","by":"me"}', "unknown field `by`"),
        (b'{"event":"sleep","at_s":1,"actor":"a"}', "'sleep'"),
        (b'{"at_s":1,"actor":"a"}', "`event`"),
        (b'{"event":"suspend","at_s":1}', "`actor`"),
        (b'{"event":"suspend","at_s":-1,"actor":"a"}', ">= 0"),
        (b'{"event":"suspend","at_s":1e13,"actor":"a"}', "<= 1"),
        (b'{"event":"suspend","at_s":NaN,"actor":"a"}', "malformed"),
        (b'{"event":"suspend","at_s":"1","actor":"a"}', "expected `float`, got `str`"),
        (b'{"event":"suspend","at_s":1,"actor":"-a"}', "matching regex"),
        (b'{"event":"suspend","at_s":1,"actor":"a\\n"}', "matching regex"),
        (b'{"event":"suspend","at_s":1,"actor":"\xff"}', "UTF-8"),
        (b'{"event":"suspend","at_s":1,"actor":null}', "got `null`"),
        (b'{"event":"assignment","at_s":1,"actor":"a","containers":[]}', "length >= 1"),
        (b'{"event":"assignment","at_s":1,"actor":"a","containers":[{"name":"m","gpus":0.5}]}', "expected `int`"),
        (b'{"event":"worker-add","at_s":1,"worker":"w","gpus":5000}', "<= 1024"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"a":[1]}}', "got `array`"),
        (b"", "truncated"),
        (b"[]", "got `array`"),
        (b"{", "truncated"),
        (b'{"event":"suspend","at_s":1,"actor":"a"}{"event":"suspend","at_s":1,"actor":"a"}', "trailing characters"),
        (b"[" * 50_000, "got `array`"),
        (b'{"event":"suspend","at_s":1,"actor":"a"} {"event":"suspend","at_s":1,"actor":"a"}', "trailing characters"),
        (b'{"event":"assignment","at_s":1,"actor":"a","containers":[{"name":"m"},{"name":"m"}]}', "have one name"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"a":1' + b"0" * 400 + b"}}", "<= 9007199254740992"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"for_s":"60"}}', "args.for_s is '60', which is no number"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"for_s":-1}}', "args.for_s is -1"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"for_s":1e300}}', "args.for_s is 1e+300"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"down_s":true}}', "args.down_s is True"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"gpu":1.5}}', "args.gpu is 1.5, which is no whole number"),
        (b'{"event":"fault","at_s":1,"fault":"x","args":{"xid":-79}}', "args.xid is -79"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(tmp_path, line, why):
    good = b'{"event":"suspend","at_s":1,"actor":"a"}\n'
    problem = refusal(tmp_path / "bad.jsonl", LINE + good * 2 + line + b"\n" + good)
    assert problem.reason is Reason.INVALID_TRACE
    assert problem.subject == f"{tmp_path}/bad.jsonl:4"
    assert problem.message.startswith(f"{tmp_path}/bad.jsonl: line 4: ")
    assert why in problem.message


def test_of_a_field_that_stands_twice_in_a_line_the_last_counts(tmp_path):
    path = tmp_path / "twice.jsonl"
    path.write_bytes(LINE + b'{"at_s":1.0,"event":"suspend","actor":"a1","actor":"a2"}\n')
    assert list(read_trace(path)[1]) == [Suspend(at_s=1.0, actor="a2")]


@pytest.mark.parametrize("between", [b"", b" ", b"\t"])
def test_two_records_in_a_line_are_refused_also_where_as_many_lines_are_empty(tmp_path, between):
    one = b'{"event":"suspend","at_s":1,"actor":"a"}'
    problem = refusal(tmp_path / "bad.jsonl", LINE + one + b"\n" + one + between + one + b"\n\n")
    assert problem.subject.endswith(":3")


def test_braces_in_a_text_are_no_second_record(tmp_path):
    path = tmp_path / "t.jsonl"
    records: list[Record] = [FaultRecord(at_s=1, fault="x", args={"a": "}{"}), Suspend(at_s=1, actor="a")]
    write_trace(path, HEADER, records)
    assert list(read_trace(path)[1]) == records


def test_a_record_over_two_lines_is_refused(tmp_path):
    problem = refusal(tmp_path / "bad.jsonl", LINE + b'{"event":"suspend",\n"at_s":1,"actor":"a"}\n')
    assert "line 2" in problem.message


def test_a_time_that_falls_is_refused_with_its_number(tmp_path):
    records = b"".join(b'{"event":"suspend","at_s":%d,"actor":"a"}\n' % at_s for at_s in (1, 2, 2, 1))
    problem = refusal(tmp_path / "bad.jsonl", LINE + records)
    assert problem.message.endswith("line 5: it is at 1 s, and the line before it at 2 s")


def test_the_number_is_right_far_behind_the_first_block(tmp_path):
    good = b'{"event":"suspend","at_s":1,"actor":"a"}\n'
    problem = refusal(tmp_path / "bad.jsonl.gz", gzip.compress(LINE + good * 20_000 + b"{}\n" + good))
    assert problem.subject.endswith(":20002")


def test_what_comes_before_a_bad_line_is_given(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(LINE + b'{"event":"suspend","at_s":1,"actor":"a"}\n' * 3 + b"{}\n")
    _, records = read_trace(path)
    assert len(list(islice(records, 3))) == 3
    with pytest.raises(ProblemError):
        next(records)


@pytest.mark.parametrize(
    ("data", "reason", "why"),
    [
        (b"", Reason.INVALID_TRACE, "the file is empty"),
        (b"hello\n", Reason.INVALID_TRACE, "line 1: it is no header of a trace: "),
        (b"[" * 100_000, Reason.INVALID_TRACE, "line 1: it is no header of a trace: "),
        (b'{"event":"suspend","at_s":1,"actor":"a"}\n', Reason.INVALID_TRACE, "line 1: it is no header of a trace: "),
        (b'{"kind":"Other","v":1,"source":"x"}\n', Reason.INVALID_TRACE, "'Other'"),
        (b'{"kind":"GreenroomTrace","source":"x"}\n', Reason.INVALID_TRACE, "there is no `v`"),
        (b'{"kind":"GreenroomTrace","v":1}\n', Reason.INVALID_TRACE, "`source`"),
        (b'{"kind":"GreenroomTrace","v":0,"source":"x"}\n', Reason.INVALID_TRACE, "there is no format 0"),
        (b'{"kind":"GreenroomTrace","v":2,"new":1}\n', Reason.NEWER_FORMAT, "format 2; this version reads up to 1"),
    ],
)
def test_a_file_without_a_header_is_refused(tmp_path, data, reason, why):
    problem = refusal(tmp_path / "bad.jsonl", data)
    assert problem.reason is reason
    assert why in problem.message


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_a_line_that_is_too_long_is_refused_before_it_is_read_to_its_end(tmp_path, newline):
    good = b'{"event":"suspend","at_s":1,"actor":"a"}\n' * 100
    problem = refusal(tmp_path / "bad.jsonl", LINE + good + b"x" * (LINE_BYTES_MAX * 3) + newline)
    assert problem.message.endswith(f"line 102: it is over {LINE_BYTES_MAX} bytes long")


def test_the_last_line_needs_no_newline(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(LINE + b'{"event":"suspend","at_s":1,"actor":"a"}')
    assert list(read_trace(path)[1]) == [Suspend(at_s=1, actor="a")]
    path.write_bytes(LINE.rstrip())
    assert list(read_trace(path)[1]) == []


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize(
    "spoil", [lambda data: data[: len(data) // 2], lambda data: data[:60] + b"?" * 60, lambda _: LINE]
)
def test_a_compressed_file_that_is_damaged_is_refused(tmp_path, suffix, spoil):
    path = tmp_path / f"t.jsonl{suffix}"
    write_trace(path, HEADER, (Resume(at_s=at_s, actor=f"a{at_s * 7919 % 1000}") for at_s in range(50_000)))
    problem = refusal(path, spoil(path.read_bytes()))
    assert problem.reason is Reason.INVALID_TRACE


def test_a_file_that_is_not_there_is_unreadable(tmp_path):
    for name in ("none.jsonl", "none.jsonl.gz", "none.jsonl.zst", "."):
        with pytest.raises(ProblemError) as refused:
            read_trace(tmp_path / name)
        assert refused.value.problem.reason is Reason.UNREADABLE_FILE


def test_a_trace_that_cannot_be_written_is_a_reason(tmp_path):
    with pytest.raises(ProblemError) as refused:
        write_trace(tmp_path / "none" / "t.jsonl", HEADER, [])
    assert refused.value.problem.reason is Reason.OUTPUT_UNWRITABLE


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_trace_is_there_when_it_is_whole_and_not_before(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(b"before")

    def records():
        yield from (Resume(at_s=at_s, actor="a") for at_s in range(10_000))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_trace(path, HEADER, records())
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_records_whose_times_fall_are_a_fault_of_ours(tmp_path):
    with pytest.raises(ValueError, match="comes after 2 s"):
        write_trace(tmp_path / "t.jsonl", HEADER, [Suspend(at_s=2, actor="a"), Suspend(at_s=1, actor="a")])


def test_a_link_stays_a_link_and_a_device_is_written_to(tmp_path):
    link, target = tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    link.symlink_to(target)
    write_trace(link, HEADER, [])
    write_trace(Path("/dev/null"), HEADER, [])
    assert link.is_symlink()
    assert target.read_bytes().startswith(b'{"kind":"GreenroomTrace"')


def test_an_iterator_that_is_dropped_closes_its_file(tmp_path):
    path = tmp_path / "t.jsonl"
    write_trace(path, HEADER, (Resume(at_s=at_s, actor="a") for at_s in range(10_000)))
    _, records = read_trace(path)
    assert next(records) == Resume(at_s=0, actor="a")
    del records  # the fixture of all tests looks for descriptors, and a warning is an error


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_the_length_of_a_trace_makes_no_difference_to_the_memory_that_it_takes(tmp_path, suffix):
    def peak_bytes(count):
        path = tmp_path / f"{count}.{suffix}"
        tracemalloc.start()
        write_trace(path, HEADER, (Resume(at_s=at_s / 8, actor=f"a{at_s % 97}", busy_s=1.5) for at_s in range(count)))
        _, written = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert sum(1 for _ in read_trace(path)[1]) == count
        _, read = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return written, read

    # The shorter one fills several blocks already.
    short, long = peak_bytes(12_000), peak_bytes(36_000)
    assert long[0] < short[0] * 1.2
    assert long[1] < short[1] * 1.2


def test_blocks_are_smaller_than_a_line_may_be():
    assert streams.BLOCK_BYTES <= LINE_BYTES_MAX  # else a line inside a block would not be measured
