"""What a part does, and what it does not."""

import itertools

from sim.fleet.config import read_config
from sim.grids import running
from sim.grids.planning import runs_of
from sim.grids.running import run_chunk
from sim.grids.sweeping import sweep
from sim.grids.work import Chunk, code_digest, kept_name
from sim.reports.what_if import what_if
from sim.traces.reading import read_trace
from supervisor.host.folders import make_folder
from tests.sim.grids.in_this_process import InThisProcess, points, trace_file


def chunk(*seeds: int) -> Chunk:
    grid, code = points(), code_digest()
    runs = tuple(run for run in runs_of(grid, range(10), code) if run.seed in seeds)
    return Chunk(code=code, points=tuple(grid), runs=runs)


def test_a_part_whose_starter_has_gone_makes_no_more_rows(monkeypatch):
    parents = itertools.chain([77, 77, 77], itertools.repeat(1))
    monkeypatch.setattr(running, "parent", lambda: next(parents))
    assert [row.seed for row in run_chunk(chunk(2, 4, 6))] == [2, 4]


def test_traces_that_travelled_are_taken_from_their_folder(tmp_path):
    whole = chunk(3)
    (point,) = whole.points
    make_folder(tmp_path / "sent")
    kept = tmp_path / "sent" / kept_name(str(point.place), str(point.digest))
    kept.write_bytes(trace_file().read_bytes())
    here, there = run_chunk(whole), run_chunk(whole, str(tmp_path / "sent"))
    assert [(row.key, row.document) for row in there] == [(row.key, row.document) for row in here]


def test_a_number_of_workers_is_what_sim_what_if_makes_of_it():
    sums = sweep(points("workers=2,3", "suspension.idle_timeout_s=30"), range(1), runner=InThisProcess(), processes=1)
    table = what_if(
        lambda: read_trace(trace_file()),
        workers=[2, 3],
        idle_timeouts_s=[30],
        configured=lambda idle_s: read_config(None, {"suspension.idle_timeout_s": idle_s}),
    )
    swept = [(each.mean("activation_p95_s"), each.mean("cost"), each.mean("waiting")) for each in sums.points]
    assert swept == [(cell.p95_s, cell.cost, cell.waiting) for cell in table.cells]
