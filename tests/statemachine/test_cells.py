"""The table by itself: every cell, every guard, every word in it."""

from __future__ import annotations

import itertools

import attrs
import pytest

from statemachine import cells, commands, events, guards, machine, updates
from statemachine.actor import TRIES_MAX, Actor, By, Claims, ContainerFate, Ending, Pending, Resource, Restart
from statemachine.catalogue import CATALOGUE
from statemachine.cells import Go, Ignore, Refuse, Timetable
from statemachine.events import EVENTS
from statemachine.guards import Guard
from statemachine.machine import Ignored, Refused, Transition, step
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from statemachine.table import TABLE
from tests.statemachine.reachable import moves
from tests.statemachine.samples import CPU, OLD, VARIANTS, problem

CELLS = [cell for rows in TABLE.values() for cell in rows]
GOES = [cell for cell in CELLS if isinstance(cell, Go)]
FATES = (None, 0, 7)

DOMAINS = {
    "claims": tuple(Claims),
    "restart": tuple(Restart),
    "containers": (
        (),
        *((ContainerFate(name="one", exit_code=one),) for one in FATES),
        *(
            (ContainerFate(name="one", exit_code=one), ContainerFate(name="two", exit_code=two))
            for one in FATES
            for two in FATES
        ),
    ),
    "origin": (None, OLD),
    "last_good": (None, OLD),
    "pending": (None, *Pending),
    "asked_by": tuple(By),
    "ending": tuple(Ending),
    "held": tuple(held for size in range(len(Resource) + 1) for held in itertools.combinations(tuple(Resource), size)),
    "lost_gpus": ((), ("GPU-0",)),
    "tries": tuple(range(TRIES_MAX + 1)),
    "problem": (
        None,
        problem(Reason.INTERNAL),
        problem(Reason.SNAPSHOT_NOT_UPLOADED),
        problem(Reason.SNAPSHOT_NOT_UPLOADED, Step.RELEASE),
    ),
}
"""The values that matter of each field of memory; which fields a cell reads is found out, not told."""
BEHIND = {"live": "containers"}
"""Properties, and the field they read."""


class Spy:
    """Stands for an actor and notes what is read of it."""

    def __init__(self, actor: Actor, read: set[str]) -> None:
        self._actor, self._read = actor, read

    def __getattr__(self, name: str) -> object:
        self._read.add(BEHIND.get(name, name))
        return getattr(self._actor, name)


def walk(state: State, kind: type) -> tuple[int, list[str]]:
    """Try a cell with every event variant and every value of the fields that its guards read.

    Returns: how many combinations were tried, and those of which not exactly one guard holds.
    """
    rows = TABLE[state, kind]
    read: set[str] = set()
    while True:
        fields = sorted(read)
        tried, bad = 0, []
        for values in itertools.product(*(DOMAINS[field] for field in fields)):
            actor = attrs.evolve(CPU, state=state, **dict(zip(fields, values, strict=True)))
            spy = Spy(actor, read)
            for event in VARIANTS[kind]:
                holding = [cell.when.name for cell in rows if cell.when.holds(spy, event)]  # type: ignore[arg-type]
                tried += 1
                if len(holding) != 1:
                    bad.append(f"{event} with {dict(zip(fields, values, strict=True))}: {holding or 'none'}")
        if read == set(fields):  # whatever else could be read has been varied
            return tried, bad


def test_every_state_and_event_has_a_cell():
    assert set(TABLE) == {(state, kind) for state in State for kind in EVENTS}
    assert all(TABLE.values())


@pytest.mark.parametrize("state", State)
def test_exactly_one_guard_of_every_cell_holds_whatever_is_remembered(state):
    wrong = {kind.__name__: walk(state, kind)[1][:3] for kind in EVENTS}
    assert {name: bad for name, bad in wrong.items() if bad} == {}


def test_the_walk_notices_a_gap_and_an_overlap(monkeypatch):
    gap, overlap = Timetable(), Timetable()
    gap.stay(State.RUNNING, events.GpuLost, when=guards.HoldsGrant & guards.FromSnapshot)
    overlap.stay(State.RUNNING, events.GpuLost, when=guards.HoldsGrant)
    overlap.stay(State.RUNNING, events.GpuLost)
    for table in (gap, overlap):
        rows = tuple(table._cells[State.RUNNING, events.GpuLost])
        monkeypatch.setitem(globals(), "TABLE", {(State.RUNNING, events.GpuLost): rows})
        tried, bad = walk(State.RUNNING, events.GpuLost)
        assert bad
        assert tried >= len(DOMAINS["held"])


def test_the_walk_tries_thousands_of_combinations():
    assert sum(walk(state, kind)[0] for state, kind in TABLE) > 6_000


def test_a_table_that_lacks_a_cell_cannot_be_built():
    table = Timetable()
    table.ignore_rest([kind for kind in EVENTS if kind is not events.GpuLost], "not needed here")
    table.ignore([state for state in State if state is not State.FAILED], events.GpuLost, "not needed here")
    with pytest.raises(ValueError, match=r"no cell for \(Failed, GpuLost\)$"):
        table.finish()


def test_every_row_is_taken_by_a_memory_that_can_really_be():
    taken = {id(move.cell) for move in moves()}
    unused = [
        f"{state}, {kind.__name__}, {cell.when.name}"
        for (state, kind), rows in TABLE.items()
        for cell in rows
        if id(cell) not in taken
    ]
    assert unused == []


def atoms() -> dict[str, Guard]:
    return {name: value for name, value in vars(guards).items() if isinstance(value, Guard)}


def test_every_guard_is_used_under_its_own_name():
    assert all(guard.name == name for name, guard in atoms().items())
    words = {
        word for cell in CELLS for word in cell.when.name.replace("~", "").replace("(", "").replace(")", "").split()
    }
    assert words - {"&", "|"} == set(atoms())


def test_every_update_is_used_under_its_own_name():
    named = {name: value for name, value in vars(updates).items() if isinstance(value, updates.Update)}
    assert all(update.name == name for name, update in named.items())
    assert {update.name for cell in GOES for update in cell.remember} == set(named)


def test_every_command_is_ordered_somewhere_and_every_order_makes_the_command_that_it_names():
    assert {order.kind for cell in GOES for order in cell.orders} == set(commands.COMMANDS)
    for move in moves():
        if isinstance(move.outcome, Transition):
            assert isinstance(move.cell, Go)
            assert [type(command) for command in move.outcome.commands] == [order.kind for order in move.cell.orders]


def test_every_order_of_the_vocabulary_is_used():
    named = {name: value for name, value in vars(cells).items() if isinstance(value, cells.Order)}
    used = {id(order) for cell in GOES for order in cell.orders}
    assert [name for name, order in named.items() if id(order) not in used] == []


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_causes_a_transition_in_some_state(kind):
    assert any(isinstance(cell, Go) for state in State for cell in TABLE[state, kind])


def test_every_event_and_command_is_in_its_union_and_its_tuple():
    assert set(events.Event.__args__) == set(EVENTS)
    assert set(commands.Command.__args__) == set(commands.COMMANDS)
    for module, kinds in ((events, EVENTS), (commands, commands.COMMANDS)):
        here = {
            value
            for value in vars(module).values()
            if isinstance(value, type) and attrs.has(value) and value.__module__ == module.__name__
        }
        assert here == set(kinds)


def test_negated_guards_keep_their_meaning_when_they_are_read():
    both, either = guards.ClaimsGpu & guards.FromSnapshot, guards.ClaimsGpu | guards.FromSnapshot
    assert (~both).name == "~(ClaimsGpu & FromSnapshot)"
    assert (~either).name == "~(ClaimsGpu | FromSnapshot)"
    assert (~both & guards.HoldsGrant).name == "~(ClaimsGpu & FromSnapshot) & HoldsGrant"
    assert (either & ~guards.HoldsGrant).name == "(ClaimsGpu | FromSnapshot) & ~HoldsGrant"
    assert (~(either & guards.HoldsGrant)).name == "~((ClaimsGpu | FromSnapshot) & HoldsGrant)"
    assert (~guards.HoldsGrant).name == "~HoldsGrant"


def test_ignored_and_refused_events_change_nothing_and_order_nothing():
    seen = set()
    for move in moves()[::5]:
        if move.outcome is None:
            before = attrs.evolve(move.actor)
            outcome = step(move.actor, move.event)
            assert move.actor == before
            assert not hasattr(outcome, "actor")
            assert not hasattr(outcome, "commands")
            seen.add(type(outcome))
    assert seen == {Ignored, Refused}


def test_every_ignore_says_why_and_every_refusal_has_a_reason_of_the_catalogue():
    for cell in CELLS:
        if isinstance(cell, Ignore):
            assert cell.why[0].islower()
            assert not cell.why.endswith(".")
        if isinstance(cell, Refuse):
            assert cell.reason in CATALOGUE


def test_only_requests_are_refused():
    refused = {kind for (_state, kind), rows in TABLE.items() for cell in rows if isinstance(cell, Refuse)}
    assert refused <= set(events.REQUESTS)


def test_a_refusal_names_state_event_and_reason():
    outcome = step(attrs.evolve(CPU, state=State.FAILED), events.SuspendRequested())
    assert isinstance(outcome, Refused)
    assert outcome.problem.step is Step.ADMISSION
    assert outcome.problem.reason is Reason.NOTHING_TO_SUSPEND
    assert outcome.problem.subject == "Failed"
    assert outcome.problem.message.startswith("SuspendRequested is refused in state Failed: ")
    assert outcome.problem.hint == CATALOGUE[Reason.NOTHING_TO_SUSPEND].hint


def test_a_drain_a_lost_gpu_and_a_recovery_have_a_cell_of_their_own_in_every_state():
    rest = "an answer of a step that was given up"
    for kind in (events.DrainRequested, events.GpuLost, events.Recovered):
        for state in State:
            whys = [cell.why for cell in TABLE[state, kind] if isinstance(cell, Ignore)]
            assert not any(why.startswith(rest) for why in whys)


@pytest.mark.parametrize("make", [cells.RESTORE, cells.FOLLOW], ids=["RestoreSandbox", "FollowPending"])
def test_an_order_without_what_it_needs_is_a_fault_of_the_table(make):
    with pytest.raises(ValueError, match="guard stands before every row"):
        make.make(CPU)


def test_an_update_that_meets_a_strange_event_changes_nothing():
    for update in (updates.Begin, updates.CountExit, updates.Promote, updates.LoseGpu, updates.BlameContainer):
        assert update.apply(CPU, events.Thawed()) is CPU


def test_a_life_begins_assigned_with_its_assignment_being_recorded():
    first = machine.begin(attrs.evolve(CPU, state=State.TERMINATED))
    assert first.actor == CPU
    assert first.commands == (commands.RecordAssignment(),)
