"""Workloads that are made up: what each is about can be seen in it, and a seed makes the same one everywhere."""

import os
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.traces.drawing import Chance, Zipf, numbered
from sim.traces.generating.describing import attributes
from sim.traces.generating.registry import MAY_BE_NOTHING, MOST, WORKLOADS, ParameterError, generate
from sim.traces.reading import read_trace
from sim.traces.records import Assignment, Resume, Suspend, WorkerAdd, WorkerDrain
from sim.traces.shipped import SEED, shipped
from sim.traces.writing import as_bytes, write_trace
from tests.needs import ROOT

NAMES = list(WORKLOADS)
SMALL = {"duration_s": 600, "day_s": 3600, "requests_per_hour": 100, "herd_every_s": 60}


def made(name, seed=SEED, **parameters):
    return list(generate(name, parameters, seed)[1])


def of_a_kind(records, kind):
    return [record for record in records if isinstance(record, kind)]


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_trace_is_what_generate_makes(name):
    path = shipped(name)
    assert path is not None
    assert path.read_bytes() == as_bytes(*generate(name, {}, SEED))
    assert path.stat().st_size < 150_000


def test_every_shipped_trace_has_a_workload_and_no_other_name_one():
    assert {path.stem for path in (ROOT / "sim/traces/shipped").glob("*.jsonl")} == set(NAMES)
    assert shipped("../records") is None


@pytest.mark.parametrize("name", NAMES)
def test_a_header_has_all_that_makes_the_trace_again(name):
    header, records = generate(name, {"workers": 7}, 5)
    parameters: dict[str, Any] = {key: value for key, value in header.notes.items() if key != "workload"}
    assert parameters["workers"] == 7
    assert as_bytes(header, records) == as_bytes(*generate(str(header.notes["workload"]), parameters, header.seed or 0))


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_makes_another_trace_which_can_be_read(name, tmp_path):
    first, second = made(name, 1), made(name, 2)
    assert first != second
    write_trace(tmp_path / "t.jsonl", generate(name, {}, 2)[0], second)
    assert list(read_trace(tmp_path / "t.jsonl")[1]) == second


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_asked_before_it_was_assigned_and_each_is_assigned_once(name):
    known: set[str] = set()
    for record in made(name):
        if isinstance(record, Assignment):
            assert record.actor not in known
            known.add(record.actor)
        elif not isinstance(record, (WorkerAdd, WorkerDrain)):
            assert record.actor in known


def test_the_hash_seed_of_python_makes_no_difference(tmp_path):
    script = (
        "import sys; from pathlib import Path; from sim.traces.generating.registry import WORKLOADS, generate\n"
        "from sim.traces.writing import as_bytes\n"
        "for name in WORKLOADS: sys.stdout.buffer.write(as_bytes(*generate(name, {}, 11)))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 100_000


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), data=st.data(), seed=st.integers(-9, 1 << 40))
def test_any_parameters_make_records_in_order(name, data, seed):
    parameters = {}
    for field in attrs.fields(WORKLOADS[name]):
        least = 0 if field.name in MAY_BE_NOTHING else 1
        most = MOST.get(field.name, SMALL.get(field.name, 12))
        if isinstance(field.default, int):
            parameters[field.name] = data.draw(st.integers(least, int(most)))
        elif isinstance(field.default, float):
            parameters[field.name] = data.draw(st.floats(least, most))
    records = made(name, seed, **parameters)
    assert [record.at_s for record in records] == sorted(record.at_s for record in records)


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("mixed", {"swing": "1"}, "mixed has no parameter 'swing'; it has workers, "),
        ("diurnal", {"swing": "1.5"}, "swing is '1.5', which is no number from 0 to 1"),
        ("diurnal", {"skew": "11"}, "from 0 to 10"),
        ("diurnal", {"day_s": "0"}, "day_s is '0', which is no number from 0.001 to 10000000"),
        ("diurnal", {"day_s": "nan"}, "day_s is 'nan'"),
        ("diurnal", {"day_s": "inf"}, "day_s is 'inf'"),
        ("diurnal", {"actors": "0"}, "actors is '0', which is no whole number from 1 to 10000000"),
        ("diurnal", {"actors": "1.5"}, "actors is '1.5'"),
        ("diurnal", {"actors": "many"}, "actors is 'many'"),
        ("diurnal", {"workers": "-1"}, "workers is '-1', which is no whole number from 0"),
        ("mixed", {"model": ""}, "model is ''"),
        ("mixed", {"model": "H100\n"}, "model is 'H100\\n'"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(name, parameters, why):
    with pytest.raises(ParameterError) as refused:
        generate(name, parameters, 1)
    assert why in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_says_what_it_is(name):
    said = attributes(WORKLOADS[name])
    assert list(said) == [field.name for field in attrs.fields(WORKLOADS[name])]
    assert all(text.endswith(".") for text in said.values())


# ------------------------------------------------------------------------------------------------- what each is about


def test_agents_are_asked_in_bursts_with_long_pauses_between():
    requests = defaultdict(list)
    for record in of_a_kind(made("bursty-agents", duration_s=36_000, actors=10), Resume):
        requests[record.actor].append(record.at_s)
    gaps = [later - earlier for whens in requests.values() for earlier, later in pairwise(whens)]
    long = [gap for gap in gaps if gap > 60]
    assert len(requests) == 10
    assert 0.1 < len(long) / len(gaps) < 0.3  # one of five, as a burst has five requests
    assert sorted(gaps)[len(gaps) // 2] < 20
    assert 200 < sum(long) / len(long) < 500


def test_agents_are_suspended_between_bursts_unless_that_is_left_to_the_fleet():
    assert len(of_a_kind(made("bursty-agents"), Suspend)) > 50
    assert of_a_kind(made("bursty-agents", idle_timeout_s=0), Suspend) == []


def test_a_training_job_has_one_container_with_gpus_and_sidecars_and_ends():
    jobs = of_a_kind(made("training-with-sidecars", actors=400, sidecars=3, gpus_per_worker=4), Assignment)
    for job in jobs:
        assert [container.gpus > 0 for container in job.containers] == [True, False, False, False]
        assert job.for_s > 0
    sizes = Counter(job.gpus for job in jobs)
    assert set(sizes) == {1, 2, 4}
    assert 150 < sizes[1] < 250  # half of them


def test_some_training_jobs_are_preempted_and_go_on():
    records = made("training-with-sidecars", actors=400, preempted_share=0.25)
    suspended = [record.actor for record in of_a_kind(records, Suspend)]
    assert 60 < len(suspended) < 140
    assert sorted(suspended) == sorted(record.actor for record in of_a_kind(records, Resume))


def test_the_herd_comes_all_at_once_and_all_were_suspended_before():
    records = made("thundering-herd", actors=30, herds=2, herd_every_s=200, within_s=2)
    for herd_s in (200, 400):
        running: set[str] = set()
        for record in records:
            if record.at_s < herd_s and isinstance(record, (Resume, Suspend)):
                (running.add if isinstance(record, Resume) else running.discard)(record.actor)
        coming = {record.actor for record in of_a_kind(records, Resume) if herd_s <= record.at_s <= herd_s + 2}
        assert (running, len(coming)) == (set(), 30)


def test_days_have_nights():
    requests = of_a_kind(made("diurnal", days=4, requests_per_hour=100), Resume)
    hours = Counter(int(record.at_s % 86_400 // 3600) for record in requests)
    assert 8_000 < len(requests) < 11_500
    assert hours[14] > 4 * hours[2]  # the peak is at 0.6 of the day, 14:24; 1.8 against 0.2 of the mean
    assert hours[14] == pytest.approx(4 * 180, rel=0.2)


def test_the_mix_has_every_class_and_a_worker_is_replaced():
    records = made("mixed")
    assert {record.class_ for record in of_a_kind(records, Assignment)} == {"agent", "train", "service", "batch"}
    *_, fresh = of_a_kind(records, WorkerAdd)
    (drain,) = of_a_kind(records, WorkerDrain)
    assert (fresh.worker, fresh.at_s, drain.worker, drain.at_s) == ("fresh-1", 900, "worker-1", 900)
    assert records.index(fresh) < records.index(drain)


# ------------------------------------------------------------------------------------------------------------- chance


def test_draws_are_the_same_for_the_same_names_and_others_for_others():
    def draws(*names):
        chance = Chance(*names)
        return [chance.share() for _ in range(5)]

    assert draws(1, "a", 2) == draws(1, "a", 2)
    assert len({tuple(draws(*names)) for names in ((1, "a", 2), (1, "a", 3), (2, "a", 2), (1, "b", 2))}) == 4


def test_draws_have_the_means_that_they_are_called_by():
    chance, many = Chance(1), 20_000
    assert sum(chance.exponential(7) for _ in range(many)) / many == pytest.approx(7, rel=0.05)
    assert sum(chance.geometric(5) for _ in range(many)) / many == pytest.approx(5, rel=0.05)
    assert sorted(chance.lognormal(3, 0.8) for _ in range(many))[many // 2] == pytest.approx(3, rel=0.05)
    assert sum(chance.between(2, 4) for _ in range(many)) / many == pytest.approx(3, rel=0.05)
    assert Counter(chance.among([1, 0, 3]) for _ in range(many))[2] / many == pytest.approx(0.75, rel=0.05)
    assert {chance.geometric(1) for _ in range(10)} == {1}


def test_the_second_is_drawn_half_as_often_as_the_first():
    chance, popularity = Chance(1), Zipf(5, 1.0)
    drawn = Counter(popularity.draw(chance) for _ in range(20_000))
    assert drawn[1] / drawn[0] == pytest.approx(1 / 2, rel=0.1)
    assert drawn[4] / drawn[0] == pytest.approx(1 / 5, rel=0.1)


def test_names_of_the_same_word_are_equally_long():
    assert [numbered("a", index, 100) for index in (0, 8, 99)] == ["a-001", "a-009", "a-100"]
