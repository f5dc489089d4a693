"""Rows as Parquet: what is kept is not made again, and there is every row once."""

import errno
import json
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from sim.grids import keeping, sweeping
from sim.grids.rows import COLUMNS, Row
from sim.grids.sweeping import sweep
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.sim.grids.in_this_process import InThisProcess, StoppedError, points

TABLE = "suspension.idle_timeout_s=30,inf"


def rows_in(folder: Path):
    return parquet.read_table(folder / keeping.WHOLE).to_pylist()


def made(folder: Path, seeds: range, *axes: str, stop_at: int | None = None):
    runner = InThisProcess(stop_at)
    sums = sweep(points(*axes), seeds, runner=runner, processes=1, folder=keeping.opened(folder))
    return runner, sums


def test_a_sweep_that_was_stopped_goes_on_and_makes_only_what_is_missing(tmp_path):
    with pytest.raises(StoppedError):
        made(tmp_path, range(3), TABLE, stop_at=4)
    before = {path.name: path.stat().st_ino for path in (tmp_path / keeping.PARTS).iterdir()}
    assert len(before) == 4
    runner, sums = made(tmp_path, range(3), TABLE)
    assert runner.seeds == [1, 2]
    assert sums.kept == 4
    after = {path.name: path.stat().st_ino for path in (tmp_path / keeping.PARTS).iterdir()}
    assert before.items() < after.items()
    found = [(row["overrides"], row["seed"]) for row in rows_in(tmp_path)]
    assert found == [([("suspension.idle_timeout_s", words)], seed) for words in ("30", "inf") for seed in range(3)]


def test_the_sums_of_a_sweep_that_was_stopped_are_those_of_one_that_was_not(tmp_path):
    with pytest.raises(StoppedError):
        made(tmp_path / "stopped", range(3), TABLE, stop_at=2)
    documents = []
    for folder in ("stopped", "whole"):
        _runner, sums = made(tmp_path / folder, range(3), TABLE)
        documents.append({name: value for name, value in sums.document().items() if name not in {"kept", "cpu_s"}})
    assert documents[0] == documents[1]
    plain = [[{**row, "cpu_s": 0} for row in rows_in(tmp_path / folder)] for folder in ("stopped", "whole")]
    assert plain[0] == plain[1]


def test_a_second_sweep_makes_nothing_and_tells_the_same(tmp_path):
    made(tmp_path, range(2))
    rows = rows_in(tmp_path)
    runner, sums = made(tmp_path, range(2))
    assert (runner.given, sums.kept) == ([], 2)
    assert rows_in(tmp_path) == rows


def test_the_same_settings_in_other_words_are_the_same_rows_under_their_new_names(tmp_path):
    made(tmp_path, range(1), "suspension.idle_timeout_s=30")
    runner, _sums = made(tmp_path, range(1), "suspension.idle_timeout_s=30.0")
    assert runner.given == []
    assert rows_in(tmp_path)[0]["overrides"] == [("suspension.idle_timeout_s", "30.0")]


def test_two_settings_that_come_to_the_same_are_one_row_and_stand_both_in_the_table(tmp_path):
    runner, sums = made(tmp_path, range(2), "suspension.idle_timeout_s=30,30.0")
    assert runner.seeds == [0, 1]
    assert [each.runs for each in sums.points] == [2, 2]
    assert len(rows_in(tmp_path)) == 2


def test_other_code_makes_its_own_rows(tmp_path, monkeypatch):
    made(tmp_path, range(1))
    monkeypatch.setattr(sweeping, "code_digest", lambda: "0" * 32)
    with pytest.raises(ProblemError) as caught:  # the code that would make them is still this one
        made(tmp_path, range(1))
    assert caught.value.problem.reason is Reason.SWEEP_UNAVAILABLE
    assert "has the digest 000000000000, and here" in caught.value.problem.message


def test_a_trace_that_has_changed_makes_its_own_rows(tmp_path):
    trace = tmp_path / "mine.jsonl"
    header = '{"v": 1, "kind": "GreenroomTrace", "source": "mine", "seed": null, "notes": {}}'
    seeds = []
    for gpus in (1, 2):
        worker = f'{{"at_s": 0.0, "event": "worker-add", "worker": "w1", "gpus": {gpus}, "model": null}}'
        trace.write_text(f"{header}\n{worker}\n")
        runner = InThisProcess()
        folder = keeping.opened(tmp_path / "kept")
        sweep(points(traces=[trace]), range(1), runner=runner, processes=1, folder=folder)
        seeds.append(runner.seeds)
    assert seeds == [[0], [0]]
    assert [row["gpus"] for row in rows_in(tmp_path / "kept")] == [2]


def test_a_trace_that_changes_while_the_sweep_goes_on_is_refused(tmp_path):
    trace = tmp_path / "mine.jsonl"
    trace.write_text('{"v": 1, "kind": "GreenroomTrace", "source": "mine", "seed": null, "notes": {}}\n')
    grid = points(traces=[trace])
    trace.write_text('{"v": 1, "kind": "GreenroomTrace", "source": "other", "seed": null, "notes": {}}\n')
    with pytest.raises(ProblemError) as caught:
        sweep(grid, range(1), runner=InThisProcess(), processes=1)
    assert caught.value.problem.reason is Reason.SWEEP_UNAVAILABLE


def test_rows_that_two_sweeps_have_made_at_once_are_taken_once(tmp_path):
    made(tmp_path, range(3))
    folder, paths = keeping.opened(tmp_path), list((tmp_path / keeping.PARTS).iterdir())
    first, second, third = sorted((row for path in paths for row in folder.rows(path)), key=lambda row: row.seed)
    for path in paths:
        path.unlink()
    folder.keep((first, second))
    folder.keep((second, third))
    runner, sums = made(tmp_path, range(3))
    assert (runner.given, sums.kept, sums.points[0].runs) == ([], 3, 3)
    assert [row["seed"] for row in rows_in(tmp_path)] == [0, 1, 2]


def test_a_part_of_older_code_with_fewer_columns_is_in_nobodys_way(tmp_path):
    made(tmp_path, range(1))
    (path,) = (tmp_path / keeping.PARTS).iterdir()
    older = parquet.read_table(path).drop_columns(["failures", "key"])
    older = older.append_column("key", [["of older code"]])
    parquet.write_table(older, tmp_path / keeping.PARTS / "older.parquet")
    runner, _sums = made(tmp_path, range(2))
    assert runner.seeds == [1]
    assert [row["seed"] for row in rows_in(tmp_path)] == [0, 1]


def test_a_part_that_is_none_is_named(tmp_path):
    made(tmp_path, range(1))
    (tmp_path / keeping.PARTS / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ProblemError) as caught:
        made(tmp_path, range(1))
    assert caught.value.problem.reason is Reason.UNREADABLE_FILE
    assert caught.value.problem.subject.endswith("torn.parquet")


def test_a_part_that_is_not_whole_yet_is_not_looked_at(tmp_path):
    made(tmp_path, range(1))
    (tmp_path / keeping.PARTS / ".half.parquet").write_bytes(b"PAR1")
    runner, _sums = made(tmp_path, range(1))
    assert runner.given == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ProblemError) as caught:
        keeping.opened(tmp_path / "file")
    assert caught.value.problem.reason is Reason.OUTPUT_UNWRITABLE


def test_a_disk_that_is_full_is_told_with_what_goes_on_afterwards(tmp_path, monkeypatch):
    def full(_path):
        raise OSError(errno.ENOSPC, "No space left on device")

    made(tmp_path, range(1))
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "growing", full)
        with pytest.raises(ProblemError) as caught:
            made(tmp_path, range(2))
    assert caught.value.problem.reason is Reason.OUTPUT_UNWRITABLE
    assert "the same command goes on" in caught.value.problem.hint
    runner, sums = made(tmp_path, range(2))
    assert (runner.seeds, sums.kept) == ([1], 1)


def test_every_column_has_the_type_that_is_said_of_it(tmp_path):
    made(tmp_path, range(1))
    schema = parquet.read_schema(tmp_path / keeping.WHOLE)
    types = {"string": "string", "int64": "int64", "double": "double", "map of string to string": "map<string, string"}
    assert schema.names == list(COLUMNS) == list(Row.__struct_fields__)
    for name, said in COLUMNS.items():
        assert str(schema.field(name).type).partition(" (")[0] == types[said.partition(":")[0]]


def test_a_row_says_what_the_replay_said(tmp_path):
    made(tmp_path, range(1))
    (row,) = rows_in(tmp_path)
    document = json.loads(row["document"])
    assert row["activation_p95_s"] == document["activation_s"]["p95"]
    assert (row["records"], row["verdict"]) == (document["rows"], document["verdict"])
    assert not {"timeline", "occupancy", "cpu_s"} & document.keys()


@pytest.mark.parametrize("module", ["pyarrow", "pyarrow.parquet"])
def test_without_the_extra_the_reason_says_what_to_install(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ProblemError) as caught:
        keeping.opened(tmp_path / "new")
    assert caught.value.problem.reason is Reason.SWEEP_UNAVAILABLE
    assert "greenroom[sweep]" in caught.value.problem.hint
    assert not (tmp_path / "new").exists()
