"""Histograms of bounded size, and timelines that grow coarser instead of longer."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.replay.quantiles import Quantiles
from sim.replay.timeline import BUCKETS_MAX, Buckets


@given(st.lists(st.floats(1e-5, 1e9), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_right_within_one_percent(values, share):
    counted = Quantiles()
    for value in values:
        counted.add(value)
    rank = max(1, -int(-share * len(values) // 1))
    assert counted.at(share) == pytest.approx(sorted(values)[rank - 1], rel=0.0101)
    assert counted.max == max(values)


def test_of_nothing_every_quantile_is_nothing():
    assert Quantiles().document() == {"count": 0, "p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0, "mean": 0.0}


def test_no_time_at_all_counts_as_none():
    counted = Quantiles()
    counted.add(0.0)
    assert counted.at(0.5) == 0.0


def test_a_histogram_of_a_million_times_as_many_values_is_as_large():
    chance, counted = random.Random(1), Quantiles()
    for _ in range(20_000):
        counted.add(10 ** chance.uniform(-9, 15))
    assert len(counted._buckets) < 2100


@given(st.lists(st.tuples(st.floats(0.001, 3000), st.integers(-3, 5)), min_size=1, max_size=60))
def test_a_timeline_keeps_the_area_below_it_whatever_its_buckets_become(changes):
    buckets = Buckets()
    series = buckets.new()
    at_s = area = level = 0.0
    for after_s, by in changes:
        area += level * after_s
        at_s += after_s
        level += by
        series.change(at_s, by)
    means, times = buckets.means(series, at_s), buckets.times(at_s)
    assert len(means) == len(times) <= BUCKETS_MAX
    widths = [later - begin for begin, later in zip(times, [*times[1:], at_s], strict=True)]
    assert sum(mean * width for mean, width in zip(means, widths, strict=True)) == pytest.approx(area, abs=0.001 * at_s)
    assert series.total == pytest.approx(area, abs=1e-6 * max(1.0, abs(area)))
