"""The one deadline of a worker's end, and what signals make of it."""

import math

import anyio
import pytest

from supervisor.shutdown import HURRIED_S, LAST_S, Phase, Shutdown

pytestmark = pytest.mark.anyio

TIME_S = 3600.0
"""So long that a busy machine changes nothing of what is compared here."""
BUSY_S = 60.0


def about(seconds):
    """So many seconds from now on."""
    return pytest.approx(anyio.current_time() + seconds, abs=BUSY_S)


async def test_before_anybody_asks_there_is_no_deadline():
    shutdown = Shutdown(TIME_S)
    with shutdown.until(Phase.SAVING) as saving, shutdown.at_last(1000.0) as last:
        assert not shutdown.is_asked
        assert saving.deadline == math.inf
        assert last.deadline == about(1000.0)
        assert last.shield


async def test_the_first_signal_begins_the_time_of_what_is_under_way_and_of_what_comes():
    shutdown = Shutdown(TIME_S)
    with shutdown.until(Phase.SAVING) as before:
        assert shutdown.ask() == TIME_S
        assert shutdown.asked.is_set()
        with shutdown.until(Phase.SAVING) as after:
            assert before.deadline == after.deadline == about(TIME_S - Phase.SAVING.leaves_s(TIME_S))
    with shutdown.until(Phase.STOPPING) as stopping, shutdown.until(Phase.ENDING) as ending:
        assert stopping.deadline == about(TIME_S - Phase.STOPPING.leaves_s(TIME_S))
        assert ending.deadline == about(TIME_S)


async def test_the_second_signal_shortens_what_is_left_and_a_third_changes_nothing():
    shutdown = Shutdown(TIME_S)
    shutdown.ask()
    with shutdown.until(Phase.ENDING) as under_way:
        assert shutdown.ask() == HURRIED_S
        deadline = under_way.deadline
        assert anyio.current_time() - BUSY_S < deadline <= anyio.current_time() + HURRIED_S
        assert shutdown.ask() is None
        assert under_way.deadline == deadline


async def test_who_wants_to_know_hears_of_the_first_signal_before_anything_comes_of_it():
    shutdown, heard = Shutdown(TIME_S), []
    shutdown.when_asked = lambda: heard.append(shutdown.is_asked)
    for _ in range(3):
        shutdown.ask()
    assert heard == [False]


async def test_a_second_signal_never_gives_more_time():
    shutdown = Shutdown(HURRIED_S / 2)
    shutdown.ask()
    with shutdown.until(Phase.ENDING) as ending:
        deadline = ending.deadline
        assert shutdown.ask() is None
        assert ending.deadline == deadline


async def test_a_body_is_given_up_when_the_time_of_its_phase_is_over_also_when_it_began_before_the_signal():
    shutdown = Shutdown(0.0)
    with anyio.fail_after(BUSY_S), shutdown.until(Phase.ENDING) as scope:
        shutdown.ask()
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_what_is_cleared_up_at_last_is_not_cancelled_with_all_else_and_has_some_seconds_after_the_deadline():
    shutdown = Shutdown(0.0)
    shutdown.ask()
    with anyio.CancelScope() as all_else:
        all_else.cancel()
        with shutdown.at_last(1000.0) as last:
            assert last.deadline == about(LAST_S)
            await anyio.lowlevel.checkpoint()
            went_on = True
    assert went_on


async def test_what_comes_in_several_parts_has_these_seconds_once():
    shutdown = Shutdown(0.0)
    shutdown.ask()
    began_at = anyio.current_time()
    for _ in range(3):
        with shutdown.at_last(1000.0, began_at=began_at) as last:
            assert last.deadline == began_at + LAST_S
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("time_s", [0.0, 1.0, 5.0, 30.0, 120.0, 1800.0, 86400.0])
def test_each_phase_leaves_time_for_those_after_it(time_s):
    saving, stopping, ending = (phase.leaves_s(time_s) for phase in Phase)
    assert time_s >= saving >= stopping >= ending == 0.0
    assert saving <= time_s / 3


def test_at_the_default_and_above_the_usual_grace_period_fits_between_the_suspends_and_the_kill():
    for time_s in (120.0, 1800.0):
        assert Phase.SAVING.leaves_s(time_s) - Phase.STOPPING.leaves_s(time_s) == 30.0


async def test_case_024_a_suspend_that_takes_two_thirds_of_the_time_is_let_finish():
    shutdown = Shutdown(1800.0)
    shutdown.ask()
    with shutdown.until(Phase.SAVING) as saving:
        assert saving.deadline >= anyio.current_time() + 1200.0
