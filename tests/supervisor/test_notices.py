"""Troubles with which an actor runs on: each once, counted, and only so many."""

import attrs
import pytest

from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.notices import NOTICES_MAX, Notices
from tests.fakes.performer import a_problem
from tests.supervisor.stands import a_stand


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1.0
        return self.now_s


def problem(subject, reason=Reason.GPU_ERROR_REPORTED):
    return attrs.evolve(a_problem(reason), subject=subject)


def test_a_trouble_is_new_once_and_then_counted():
    notices = Notices(Clock())
    assert notices.add(problem("XID 13"))
    assert not notices.add(problem("XID 13"), 5)
    assert notices.add(problem("XID 31"))
    told = notices.as_json()
    assert [(each["subject"], each["count"]) for each in told] == [("XID 13", 6), ("XID 31", 1)]
    assert told[0]["first"] < told[0]["last"]
    assert told[0]["hint"]


def test_the_same_subject_with_another_reason_is_another_trouble():
    notices = Notices(Clock())
    assert notices.add(problem("main"))
    assert notices.add(problem("main", Reason.FILE_SERVER_LOST))


def test_there_are_only_so_many_and_the_one_told_longest_ago_goes():
    notices = Notices(Clock())
    for number in range(NOTICES_MAX):
        notices.add(problem(str(number)))
    notices.add(problem("0"))
    notices.add(problem("new"))
    subjects = [each["subject"] for each in notices.as_json()]
    assert len(subjects) == NOTICES_MAX
    assert subjects[-2:] == ["0", "new"]
    assert "1" not in subjects


def test_a_new_life_begins_without_any():
    notices = Notices(Clock())
    notices.add(problem("main"))
    notices.clear()
    assert notices.as_json() == []


# ---- of an actor


@pytest.mark.anyio
async def test_an_actors_troubles_are_in_its_status_file_and_gone_with_its_next_start():
    async with a_stand() as stand:
        await stand.running()
        await stand.worker.tell_trouble("a1", problem("main"), 2)
        await stand.worker.tell_trouble("nobody", problem("main"), 1)
        assert [(each["subject"], each["count"]) for each in stand.status()["notices"]] == [("main", 2)]
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        assert [each["subject"] for each in stand.status()["notices"]] == ["main"]
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)
        assert stand.status()["notices"] == []


@pytest.mark.anyio
async def test_a_life_that_is_over_is_told_nothing_any_more():
    async with a_stand() as stand:
        await stand.running()
        await operations.stop(stand.worker, "a1")
        await stand.life().ended.wait()
        await stand.worker.tell_trouble("a1", problem("main"), 1)
        assert stand.status()["notices"] == []
