"""What happens on a simulated machine without tasks of its own: in the order of its times, unless it is called off."""

import trio

from sim.engine import run_in_virtual_time
from sim.world.agenda import Agenda


def done_by(note, *, draw=lambda: 0.0, for_s=10.0):
    """What was done, and when, in so many virtual seconds."""
    done = []

    async def main():
        agenda = Agenda(draw)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agenda.keep)
            await note(agenda, lambda word: lambda: done.append((word, trio.current_time())))
            await trio.sleep(for_s)
            nursery.cancel_scope.cancel()

    run_in_virtual_time(main, seed=0)
    return done


def test_what_is_due_first_comes_first_in_whatever_order_it_was_noted():
    async def note(agenda, tell):
        agenda.at(2.0, tell("later"))
        agenda.at(1.0, tell("sooner"))

    assert done_by(note) == [("sooner", 1.0), ("later", 2.0)]


def test_an_earlier_appointment_wakes_an_agenda_that_sleeps_for_a_later_one():
    async def note(agenda, tell):
        agenda.at(5.0, tell("later"))
        await trio.sleep(1.0)
        agenda.at(2.0, tell("sooner"))
        agenda.soon(tell("now"))

    assert done_by(note) == [("now", 1.0), ("sooner", 2.0), ("later", 5.0)]


def test_what_was_called_off_is_not_done_and_wakes_nobody():
    async def note(agenda, tell):
        agenda.at(1.0, tell("never")).call_off()
        agenda.at(2.0, tell("done"))

    assert done_by(note) == [("done", 2.0)]


def test_of_what_is_due_at_once_the_smallest_draw_comes_first():
    async def note(agenda, tell):
        for word in "abc":
            agenda.at(1.0, tell(word))

    drawn = iter((0.5, 0.1, 0.9))
    assert done_by(note, draw=lambda: next(drawn)) == [("b", 1.0), ("a", 1.0), ("c", 1.0)]
    assert done_by(note) == [("a", 1.0), ("b", 1.0), ("c", 1.0)]


def test_what_is_done_may_note_more():
    async def note(agenda, tell):
        agenda.at(1.0, lambda: agenda.at(trio.current_time() + 1.0, tell("second")))

    assert done_by(note) == [("second", 2.0)]
