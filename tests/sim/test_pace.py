"""The engine is fast enough for sweeps. In CPU seconds, the best of some tries: neighbours on the machine cost some."""

import pytest

from tests.sim import pace

pytestmark = pytest.mark.bench
TRIES = range(3)


def _tell(text):
    """Show what was measured, under `-s`."""
    print(f"\n{text}")  # noqa: T201 - this is its output


def test_whole_lives_make_12000_port_calls_a_second_and_700_transitions():
    found = [pace.whole_lives(30, 3) for _ in TRIES]
    calls_per_s, events_per_s = max(found, key=lambda each: each[1])
    _tell(f"{calls_per_s:,.0f} port calls and {events_per_s:,.0f} transitions a second of CPU")
    assert calls_per_s >= 12_000
    assert events_per_s >= 700


def test_a_worker_with_1000_actors_admits_one_more_and_tells_of_all_in_milliseconds():
    found = [pace.admission(1000) for _ in TRIES]
    admission_ms, status_ms = (min(each) for each in zip(*found, strict=True))
    _tell(f"{admission_ms:.1f} ms for an admission, {status_ms:.1f} ms for the status of 1000 actors")
    # The whole request: client, sockets, admission, and the first step of the life beside it.
    assert admission_ms <= 2
    assert status_ms <= 50


def test_an_actor_costs_what_it_may():
    # The smallest: a table of the interpreter that grows meanwhile is nobody's.
    supervisor_bytes, world_bytes = min(pace.memory(100) for _ in TRIES)
    _tell(f"{supervisor_bytes:,.0f} bytes of the supervisor for an actor, {world_bytes:,.0f} of the simulated world")
    assert supervisor_bytes <= 40_000
