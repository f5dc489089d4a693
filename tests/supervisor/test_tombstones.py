"""Who is remembered of those that have ended, and for how long."""

from types import SimpleNamespace

import pytest

from supervisor import tombstones
from supervisor.tombstones import TOMBSTONE_S, Tombstones


@pytest.fixture
def clock():
    return SimpleNamespace(now_s=1e9)


@pytest.fixture
def stones(clock):
    return Tombstones(lambda: clock.now_s)


def test_an_end_is_remembered_for_a_day(stones, clock):
    stones.put("a1", clock.now_s)
    stones.put("a2", clock.now_s + 10)
    clock.now_s += TOMBSTONE_S
    assert stones.take_old() == ()
    clock.now_s += 1
    assert stones.take_old() == ("a1",)
    clock.now_s += 10
    assert stones.take_old() == ("a2",)
    assert stones.take_old() == ()


def test_of_too_many_the_oldest_are_forgotten(stones, clock, monkeypatch):
    monkeypatch.setattr(tombstones, "TOMBSTONES_MAX", 2)
    for place, uid in enumerate(("a2", "a1", "a3", "a4")):
        stones.put(uid, clock.now_s + place)
    assert stones.take_old() == ("a2", "a1")
    assert stones.take_old() == ()


def test_whose_next_life_has_begun_is_none_of_them(stones, clock):
    stones.put("a1", clock.now_s)
    stones.take("a1")
    stones.take("never here")
    clock.now_s += 2 * TOMBSTONE_S
    assert stones.take_old() == ()
