"""The engine is fast enough for sweeps. In CPU seconds, the best of some tries: neighbours on the machine cost some."""

import pytest

from tests.sim import pace

pytestmark = pytest.mark.bench
TRIES = range(3)


def test_whole_lives_make_4000_port_calls_a_second():
    assert max(pace.whole_lives(30, 3)[0] for _ in TRIES) >= 4000


def test_a_worker_with_900_actors_admits_one_more_and_tells_of_all_in_milliseconds():
    found = [pace.admission(900) for _ in TRIES]
    # The whole request: client, sockets, admission, and the first step of the life beside it.
    assert min(admission_ms for admission_ms, _ in found) <= 4
    assert min(status_ms for _, status_ms in found) <= 50


def test_an_actor_costs_what_it_may():
    whole_kib, world_kib = pace.memory(100)
    # Without the world's own share; tasks of the world's sandboxes are still in it.
    assert whole_kib - world_kib <= 55
