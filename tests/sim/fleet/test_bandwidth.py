"""The way to the store is shared: by all transfers, and by those of one worker."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.fleet.bandwidth import Bandwidth


def a_way(bytes_per_s=10.0, worker_bytes_per_s=10.0) -> Bandwidth[Any]:
    return Bandwidth(bytes_per_s=bytes_per_s, worker_bytes_per_s=worker_bytes_per_s)


def carried(transfers, *, bytes_per_s=100.0, worker_bytes_per_s=60.0):
    """When each of the transfers (begins at, worker, bytes) ends."""
    way = a_way(bytes_per_s, worker_bytes_per_s)
    to_come = sorted(enumerate(transfers), key=lambda pair: pair[1][0])
    ends, now_s = {}, 0.0
    while to_come or len(way):
        found = way.next_end(now_s)
        if to_come and (found is None or to_come[0][1][0] <= found[0]):
            key, (now_s, worker, size_bytes) = to_come.pop(0)
            way.begin(key, worker, size_bytes, now_s)
        else:
            assert found is not None
            now_s, key = found
            way.drop(key, now_s)
            ends[key] = now_s
    return [ends[key] for key in range(len(transfers))]


@pytest.mark.parametrize(
    ("transfers", "ends"),
    [
        ([(0.0, "a", 60.0)], [1.0]),
        ([(0.0, "a", 60.0), (0.0, "a", 60.0)], [2.0, 2.0]),
        ([(0.0, "a", 60.0), (0.0, "b", 60.0)], [1.2, 1.2]),
        ([(0.0, "a", 50.0), (0.0, "b", 110.0)], [1.0, 2.0]),
        ([(0.0, "a", 60.0), (0.5, "a", 30.0)], [1.5, 1.5]),
    ],
)
def test_each_transfer_has_its_share(transfers, ends):
    assert carried(transfers) == pytest.approx(ends)


def test_a_transfer_that_is_given_up_leaves_its_share_to_others():
    way = a_way()
    way.begin("a", "w", 10.0, 0.0)
    way.begin("b", "w", 10.0, 0.0)
    assert way.drop("b", 1.0)
    assert not way.drop("b", 1.0)
    end_s, key = way.next_end(1.0) or (0.0, "")
    assert key == "a"
    assert end_s == pytest.approx(1.5)


def test_nothing_moves_while_the_store_is_out_of_reach():
    way = a_way()
    way.begin("a", "w", 10.0, 0.0)
    way.pause(0.5, paused=True)
    assert way.next_end(0.5) is None
    way.pause(100.0, paused=False)
    end_s, key = way.next_end(100.0) or (0.0, "")
    assert key == "a"
    assert end_s == pytest.approx(100.5)


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from("abc"), st.floats(1, 1000)), min_size=1, max_size=12))
def test_no_way_carries_more_than_it_can(transfers):
    ends = carried(transfers)
    begin_s, end_s = min(at_s for at_s, _, _ in transfers), max(ends)
    assert sum(size for _, _, size in transfers) <= 100.0 * (end_s - begin_s) * (1 + 1e-6)
    for worker in "abc":
        own = [(at_s, size, end) for (at_s, name, size), end in zip(transfers, ends, strict=True) if name == worker]
        if own:
            lasted_s = max(end for *_, end in own) - min(at_s for at_s, *_ in own)
            assert sum(size for _, size, _ in own) <= 60.0 * lasted_s * (1 + 1e-6)
