"""How many actors a worker takes on: as many as it may, however many have ended and are remembered."""

from typing import Any

import attrs
import pytest

from statemachine.actor import Actor
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.room import Room

MOST = 10


@attrs.define
class Remembered:
    """As much of a life as is looked at; `looks` counts how often that is."""

    state: State = State.RUNNING
    begins_anew: bool = False
    looks: int = 0

    @property
    def actor(self):
        self.looks += 1
        return Actor(state=self.state)


def refusal(room, lives, uid):
    try:
        room.require(lives, uid, MOST)
    except ProblemError as error:
        return error.problem.reason
    lives[uid] = Remembered()
    return None


def admitted(room, lives, uid):
    return refusal(room, lives, uid) is None


def test_there_are_never_more_than_there_may_be_and_never_fewer():
    room = Room()
    lives: dict[str, Any] = {}
    for number in range(300):
        uid = f"a{number}"
        active = [each for each in lives.values() if each.state is not State.TERMINATED]
        assert admitted(room, lives, uid) == (len(active) < MOST)
        if number % 3 == 0 and active:
            active[0].state = State.TERMINATED


def test_those_who_have_ended_are_not_counted_at_every_admission():
    room, ended = Room(), {f"e{number}": Remembered(State.TERMINATED) for number in range(1000)}
    lives = dict(ended)
    for number in range(MOST):
        assert admitted(room, lives, f"a{number}")
    assert sum(each.looks for each in ended.values()) == len(ended)
    assert refusal(room, lives, "one more") is Reason.WORKER_FULL


def test_one_that_ends_and_begins_anew_keeps_its_place():
    room, lives = Room(), {f"a{number}": Remembered() for number in range(MOST)}
    lives["a0"] = Remembered(State.TERMINATED, begins_anew=True)
    assert not admitted(room, lives, "other")
    assert admitted(room, lives, "a0")


def test_somebody_who_was_found_on_disk_takes_room_that_was_counted_before():
    room, lives = Room(), {f"e{number}": Remembered(State.TERMINATED) for number in range(MOST)}
    assert admitted(room, lives, "a0")
    lives |= {f"found{number}": Remembered() for number in range(MOST - 1)}
    room.count_anew()
    assert not admitted(room, lives, "a1")


def test_whoever_comes_while_few_are_remembered_takes_room_that_was_counted_before():
    room, lives = Room(), {f"e{number}": Remembered(State.TERMINATED) for number in range(MOST)}
    assert admitted(room, lives, "a0")
    lives = {"a0": lives["a0"]}  # a day later nobody who has ended is remembered
    assert [admitted(room, lives, f"b{number}") for number in range(MOST)] == [True] * (MOST - 1) + [False]


def test_a_lower_limit_counts_at_once():
    room = Room()
    lives: dict[str, Any] = {f"e{number}": Remembered(State.TERMINATED) for number in range(MOST)}
    assert admitted(room, lives, "a0")
    with pytest.raises(ProblemError):
        room.require(lives, "a1", 1)
