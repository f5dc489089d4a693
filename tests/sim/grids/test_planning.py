"""What a grid consists of, how it is cut, and what a row is kept under."""

import math

import msgspec
import pytest

from sim.fleet.config import FleetConfig, read_config
from sim.grids.planning import CHUNK_MAX, CHUNKS_EACH, chunks_of, runs_of
from sim.grids.work import Chunk, chunk_of, code_digest
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.sim.grids.in_this_process import points

CODE = "c" * 32


def cut(seeds: range, *axes: str, processes: int = 2, done: frozenset[str] = frozenset(), engine="fast") -> list[Chunk]:
    grid = points(*axes, engine=engine)
    return list(chunks_of(grid, runs_of(grid, seeds, CODE), done, CODE, processes=processes))


def test_what_a_run_rests_on_is_in_its_key_and_its_names_are_not():
    (point,) = points("suspension.idle_timeout_s=30")
    key = point.key(7, CODE)
    others = [
        point.key(8, CODE),
        point.key(7, "d" * 32),
        msgspec.structs.replace(point, digest="0" * 32).key(7, CODE),
        msgspec.structs.replace(point, engine="faithful").key(7, CODE),
        msgspec.structs.replace(point, workers=3).key(7, CODE),
        points("suspension.idle_timeout_s=31")[0].key(7, CODE),
    ]
    assert len({key, *others}) == len(others) + 1
    renamed = msgspec.structs.replace(point, number=9, trace="x", place="/y", config="z", overrides={})
    assert renamed.key(7, CODE) == key


def test_a_config_travels_whole_with_what_is_never():
    (point,) = points("suspension.idle_timeout_s=inf")
    config = msgspec.msgpack.decode(point.settings, type=FleetConfig)
    assert config == read_config(None, {"suspension.idle_timeout_s": math.inf})
    assert list(config.latency) == list(read_config().latency)


@pytest.mark.parametrize(("count", "processes"), [(1, 2), (3, 2), (100, 2), (4000, 2), (999, 7)])
def test_every_run_is_in_one_chunk_and_a_chunk_is_no_longer_than_it_may(count, processes):
    chunks = cut(range(count), processes=processes)
    assert [run.seed for chunk in chunks for run in chunk.runs] == list(range(count))
    assert max(len(chunk.runs) for chunk in chunks) <= CHUNK_MAX
    assert len(chunks) >= min(count, processes * CHUNKS_EACH)


def test_what_is_done_is_in_no_chunk():
    done = frozenset(run.key for chunk in cut(range(10)) for run in chunk.runs if run.seed % 2)
    assert [run.seed for chunk in cut(range(10), done=done) for run in chunk.runs] == [0, 2, 4, 6, 8]


def test_a_faithful_replay_is_a_chunk_of_its_own():
    assert {len(chunk.runs) for chunk in cut(range(200), processes=1, engine="faithful")} == {1}


def test_a_chunk_of_many_settings_fits_into_an_argument_of_a_command():
    wide = ",".join(map(str, range(1, 401)))
    chunks = cut(range(1), f"suspension.idle_timeout_s={wide}", processes=1)
    assert chunks[0] == chunk_of(chunks[0].packed())
    assert max(len(chunk.packed()) for chunk in chunks) < 128 << 10
    assert len(chunks[0].runs) == CHUNK_MAX


@pytest.mark.parametrize("words", ["0", "many", "1.5", "true", "100001"])
def test_what_is_no_number_of_workers_is_refused(words):
    with pytest.raises(ProblemError) as caught:
        points(f"workers={words}")
    assert caught.value.problem.reason is Reason.CONFIG_REFUSED


def test_a_setting_that_is_none_is_refused_before_anything_runs():
    with pytest.raises(ProblemError) as caught:
        points("suspension.nap=1")
    assert caught.value.problem.reason is Reason.CONFIG_REFUSED


def test_the_digest_of_the_code_is_the_same_each_time():
    assert code_digest() == code_digest()
