"""Sweeps in processes of this machine."""

import itertools

import anyio
import pytest

from sim.beside import PartLostError
from sim.chaos.campaign import run_seeds
from sim.chaos.config import CampaignConfig
from sim.grids import local
from sim.grids.answers import TRIES_MAX
from sim.grids.local import LocalProcesses
from sim.grids.planning import chaos_points
from sim.grids.running import run_chunk
from sim.grids.sweeping import sweep
from sim.grids.work import Told, chunk_of
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.sim.grids.in_this_process import InThisProcess, points


def document(sums):
    return {name: value for name, value in sums.document().items() if name != "cpu_s"}


def test_processes_make_the_rows_that_are_made_here():
    grid = points("workers=2,4")
    assert document(sweep(grid, range(1), runner=LocalProcesses(2), processes=2)) == document(
        sweep(grid, range(1), runner=InThisProcess(), processes=1)
    )


@pytest.mark.parametrize("runner", [InThisProcess(), pytest.param(LocalProcesses(2), marks=pytest.mark.long)])
def test_chaos_is_summed_as_its_campaign_is(runner):
    grid = chaos_points(CampaignConfig(), "default", [])
    sums = sweep(grid, range(2), runner=runner, processes=2)
    assert sums.campaign == run_seeds(range(2), CampaignConfig())
    assert (sums.verdict, sums.exit_code) == ("ok", 0)


def losing(*seeds: int, times: int):
    """Processes that do not come to their end, so many times for each chunk of these seeds; the others run here."""
    counts = dict.fromkeys(seeds, times)

    async def run_part(_port, _module, packed, *, deadline_s):
        chunk = chunk_of(packed)
        assert deadline_s > 0
        await anyio.lowlevel.checkpoint()
        seed = chunk.runs[0].seed
        if counts.get(seed, 0):
            counts[seed] -= 1
            raise PartLostError("its process ended with -9: killed")
        return Told(rows=run_chunk(chunk)).packed()

    return run_part


def test_a_chunk_whose_process_is_lost_is_begun_anew_and_its_rows_come_once(monkeypatch):
    monkeypatch.setattr(local, "run_part", losing(1, times=TRIES_MAX - 1))
    sums = sweep(points(), range(3), runner=LocalProcesses(1), processes=1)
    assert sums.points[0].runs == 3


def test_the_last_chunk_is_begun_anew_too_when_its_process_is_lost_while_nobody_else_is_at_work(monkeypatch):
    others_are_done, ended = anyio.Event(), []
    losing_last = losing(2, times=TRIES_MAX - 1)

    async def run_part(port, module, packed, *, deadline_s):
        if chunk_of(packed).runs[0].seed == 2:
            await others_are_done.wait()
        told = await losing_last(port, module, packed, deadline_s=deadline_s)
        ended.append(packed)
        if len(ended) == 2:
            # Whoever was at work beside it finds nothing left to do, and is done for good.
            await anyio.wait_all_tasks_blocked()
            others_are_done.set()
        return told

    monkeypatch.setattr(local, "run_part", run_part)
    sums = sweep(points(), range(3), runner=LocalProcesses(3), processes=3)
    assert sums.points[0].runs == 3


def test_a_chunk_that_is_lost_each_time_is_told_and_the_others_are_made(monkeypatch):
    monkeypatch.setattr(local, "run_part", losing(1, times=TRIES_MAX))
    counts = []
    with pytest.raises(ProblemError) as caught:
        sweep(points(), range(3), runner=LocalProcesses(1), processes=1, tell=lambda done, _total: counts.append(done))
    assert caught.value.problem.reason is Reason.SWEEP_INCOMPLETE
    assert "ended with -9: killed" in caught.value.problem.message
    assert counts == [0, 1, 2]


@pytest.mark.parametrize("spoil", [lambda told: told[:-1], lambda _told: b"", lambda _told: Told().packed()])
def test_an_answer_that_is_not_whole_is_none(monkeypatch, spoil):
    numbers = itertools.count()

    async def run_part(_port, _module, packed, *, deadline_s):
        assert deadline_s > 0
        await anyio.lowlevel.checkpoint()
        told = Told(rows=run_chunk(chunk_of(packed))).packed()
        return told if next(numbers) else spoil(told)

    monkeypatch.setattr(local, "run_part", run_part)
    sums = sweep(points(), range(1), runner=LocalProcesses(1), processes=1)
    assert (sums.points[0].runs, next(numbers)) == (1, 2)


def test_what_a_run_refuses_is_told_by_its_reason(tmp_path):
    trace = tmp_path / "wrong.jsonl"
    trace.write_text('{"v": 1, "kind": "GreenroomTrace", "source": "x", "seed": null, "notes": {}}\n{"at_s": 1}\n')
    with pytest.raises(ProblemError) as caught:
        sweep(points(traces=[trace]), range(1), runner=LocalProcesses(1), processes=1)
    assert caught.value.problem.reason is Reason.INVALID_TRACE
    assert "line 2" in caught.value.problem.message


def test_rows_in_any_order_have_the_same_sums():
    runner = InThisProcess()
    sums = sweep(points("workers=2,3"), range(3), runner=runner, processes=1)

    class Backwards(InThisProcess):
        def __call__(self, chunks, take):
            super().__call__(reversed(list(chunks)), take)

    assert document(sweep(points("workers=2,3"), range(3), runner=Backwards(), processes=1)) == document(sums)
