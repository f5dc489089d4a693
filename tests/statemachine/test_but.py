"""`Actor.but`: attrs.evolve in a fifth of its time, and as strict; and steps that no row of the table is for."""

import attrs
import pytest

from statemachine import machine
from statemachine.actor import Actor, Pending
from statemachine.cells import Go, Timetable
from statemachine.commands import CREATES
from statemachine.events import EVENTS, AssignmentRecorded
from statemachine.guards import Always
from statemachine.states import State
from statemachine.table import TABLE
from tests.statemachine.samples import GPU, OLD


def test_it_is_what_evolve_makes():
    assert GPU.but(state=State.FAILED, tries=3) == attrs.evolve(GPU, state=State.FAILED, tries=3)
    assert GPU.but() == GPU
    assert hash(GPU.but()) == hash(GPU)


def test_the_actor_that_it_is_made_from_stays_as_it_was():
    before = attrs.evolve(GPU)
    GPU.but(pending=Pending.RUN)
    assert before == GPU


def test_an_attribute_that_actors_do_not_have_is_refused():
    with pytest.raises(TypeError, match="an actor has no mood"):
        GPU.but(mood="good")


def test_an_actor_is_still_frozen():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        GPU.tries = 3  # type: ignore[misc]  # which is what is tried here


def test_nothing_that_the_constructor_would_do_is_left_out():
    assert [field.name for field in attrs.fields(Actor) if field.converter or field.validator or not field.init] == []
    assert not {"__attrs_pre_init__", "__attrs_post_init__"} & set(dir(Actor))


def test_what_a_row_makes_is_what_its_commands_may_make():
    one = GPU.but(origin=OLD, pending=Pending.RUN)
    for row in (row for cells in TABLE.values() for row in cells if isinstance(row, Go)):
        commands = [order.make(one) for order in row.orders]
        assert row.makes == {made for command in commands for made in CREATES.get(type(command), ())}


def test_a_state_and_its_word_are_one_key():
    assert hash(State.RUNNING) == hash("Running")
    assert {**{str(state): state for state in State}, State.RUNNING: 1}["Running"] == 1


def test_a_table_without_a_row_that_holds_says_so_instead_of_going_on(monkeypatch):
    rows = Timetable()
    rows.go(list(State), AssignmentRecorded, State.RUNNING, when=~Always)
    rows.ignore_rest(EVENTS, "a test")
    monkeypatch.setattr(machine, "TABLE", rows.finish())
    with pytest.raises(AssertionError, match=r"no row of \(Assigned, AssignmentRecorded\) holds"):
        machine.step(Actor(state=State.ASSIGNED), AssignmentRecorded())
