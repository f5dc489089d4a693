"""Records in order, however many; and actors that are suspended when they are idle."""

import tempfile
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.traces.activity import suspended_when_idle
from sim.traces.ordering import from_zero, in_order
from sim.traces.records import Assignment, Resume, Suspend, Terminate, WorkerAdd
from tests.sim.traces.any_records import RECORDS


def resumes(*whens):
    return [Resume(at_s=at_s, actor="a", busy_s=busy_s) for at_s, busy_s in whens]


@settings(deadline=None, max_examples=50)
@given(records=st.lists(RECORDS, max_size=40), at_once=st.integers(1, 50))
def test_records_come_by_time_workers_first_and_else_as_they_came(records, at_once):
    expected = sorted(records, key=lambda record: (record.at_s, not isinstance(record, WorkerAdd)))
    assert list(in_order(records, at_once=at_once)) == expected


def test_what_is_put_in_order_on_disk_leaves_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    records = in_order(resumes(*((at_s, 1.0) for at_s in range(100, 0, -1))), at_once=10)
    assert next(records).at_s == 1
    assert len(list(tmp_path.rglob("*.jsonl"))) == 10
    del records
    assert list(tmp_path.iterdir()) == []


def test_many_records_take_no_more_memory_than_few():
    def peak_bytes(count):
        tracemalloc.start()
        backwards = (Resume(at_s=count - number, actor=f"a{number % 97}") for number in range(count))
        found = sum(1 for _ in in_order(backwards, at_once=5000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == count
        return peak

    # Merging takes a little of each part: six of them against two.
    assert peak_bytes(30_000) < peak_bytes(10_000) * 1.5


def test_a_trace_begins_at_zero_and_says_when_it_began_before():
    notes: dict[str, Any] = {}
    moved = list(from_zero(resumes((1700000000.25, 1), (1700000001.5, 2)), notes))
    assert moved == resumes((0, 1), (1.25, 2))
    assert notes == {"beganAt_s": 1700000000.25}
    assert list(from_zero([], notes)) == []


def test_an_actor_is_suspended_when_nobody_asked_it_for_so_long_after_its_work():
    records = resumes((0, 5), (20, 1), (100, 0))
    assert list(suspended_when_idle(records, 30)) == [
        *records[:2],
        Suspend(at_s=51, actor="a"),
        records[2],
        Suspend(at_s=130, actor="a"),
    ]


def test_a_short_request_does_not_end_a_long_one():
    assert list(suspended_when_idle(resumes((0, 50), (1, 1)), 10))[-1] == Suspend(at_s=60, actor="a")


def test_who_was_suspended_or_has_ended_is_not_suspended_again():
    for end in (Suspend(at_s=3, actor="a"), Terminate(at_s=3, actor="a")):
        records = [*resumes((0, 1)), end]
        assert list(suspended_when_idle(records, 30)) == records


def looked_through(records, timeout_s):
    """When each actor is suspended, the slow way: after a request that nothing follows until it is idle."""
    for name in {record.actor for record in records}:
        own, idle_s = [record for record in records if record.actor == name], 0.0
        for record, following in zip(own, [*own[1:], None], strict=True):
            idle_s = (
                max(idle_s, record.at_s + (record.busy_s or 0.0) + timeout_s) if isinstance(record, Resume) else 0.0
            )
            if idle_s and (following is None or following.at_s > idle_s):
                yield idle_s, name
                idle_s = 0.0


@settings(deadline=None, max_examples=60)
@given(
    deeds=st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from("ab"), st.booleans(), st.integers(0, 90)),
        max_size=20,
    )
)
def test_it_is_found_at_its_time_who_is_idle_whatever_came_before(deeds):
    records = [
        Resume(at_s=float(at_s), actor=actor, busy_s=float(busy_s)) if asks else Suspend(at_s=float(at_s), actor=actor)
        for at_s, actor, asks, busy_s in sorted(deeds, key=lambda deed: deed[0])
    ]
    made = [each for each in suspended_when_idle(records, 7.0) if not any(each is record for record in records)]
    assert [(each.at_s, each.actor) for each in made if isinstance(each, Suspend)] == sorted(
        looked_through(records, 7.0)
    )


def test_requests_that_came_before_the_last_one_take_no_memory():
    tracemalloc.start()
    asked = (Resume(at_s=float(at_s), actor="a") for at_s in range(20_000))
    assert sum(1 for _ in suspended_when_idle(asked, 1e9)) == 20_001
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_without_a_timeout_and_without_a_request_nobody_is_suspended():
    records = resumes((0, 1), (1000, 1))
    assert list(suspended_when_idle(records, None)) == records
    assigned = [Assignment(at_s=0, actor="a"), Assignment(at_s=1000, actor="b")]
    assert list(suspended_when_idle(assigned, 1)) == assigned


@settings(deadline=None)
@given(
    requests=st.lists(st.tuples(st.floats(0, 1000), st.sampled_from("abc"), st.floats(0, 100)), max_size=30),
    timeout_s=st.floats(0.001, 100),
)
def test_suspends_stand_in_order_and_each_is_an_end_of_a_time_of_activity(requests, timeout_s):
    records = [Resume(at_s=at_s, actor=actor, busy_s=busy_s) for at_s, actor, busy_s in sorted(requests)]
    made = list(suspended_when_idle(records, timeout_s))
    assert [record for record in made if not isinstance(record, Suspend)] == records
    assert [record.at_s for record in made] == sorted(record.at_s for record in made)
    for actor in {record.actor for record in records}:
        own = [record for record in made if getattr(record, "actor", None) == actor]
        assert isinstance(own[-1], Suspend)
        assert not any(isinstance(first, Suspend) and isinstance(second, Suspend) for first, second in pairwise(own))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_all_are_taken_before_the_first_is_given(count):
    taken = []

    def records():
        for record in resumes((2, 1), (1, 1), (0, 1))[:count]:
            taken.append(record)
            yield record

    for _ in in_order(records(), at_once=2):
        assert len(taken) == count
    assert len(taken) == count
