"""docs/recovery.md has the table of what a restart does; here it is held against what is done."""

import re

import attrs
import pytest

from actors.gpu.desk import SpecFacts
from actors.gpu.partition import Grant
from actors.runsc.reclaiming import Survivor
from statemachine import commands as c
from statemachine.actor import Ending, Resource
from statemachine.states import FINAL, RESTING, State
from supervisor.recovering import recover
from supervisor.surveying import Survey
from tests.actors.records import a_record
from tests.fakes.performer import a_snapshot, failing
from tests.fakes.ports import FakePorts
from tests.needs import ROOT
from tests.supervisor.lives import settled
from tests.supervisor.stands import STATE, a_stand
from tests.supervisor.test_recovering import an_actor, left

pytestmark = pytest.mark.anyio

ROW = re.compile(r"\| `(\w+)` \| `(\w+)` \| `(\w+)` \| .+ \|")
TABLE = {
    State(was): (State(alive), State(gone))
    for was, alive, gone in ROW.findall((ROOT / "docs" / "recovery.md").read_text())
}
SURVIVOR = Survivor(record=a_record(), processes=())


async def come_to_rest(state, *survivors, **changes):
    """Recover an actor that was in a state; returns the life, where it has come to rest."""
    ports = FakePorts()
    ending = Ending.TERMINATED if state is State.STOPPING else Ending.FAILED
    await left(ports, an_actor(state, held=(Resource.SANDBOX,), ending=ending, **changes))
    async with a_stand(ports) as stand:
        found = Survey(alive={"a1": survivors} if survivors else {}, dead=())
        await recover(ports.as_ports, STATE, stand.worker, found)
        life = stand.life()
        while life.actor.state not in RESTING | FINAL:
            await life.changed()
        await settled()
        return life, stand.performers["a1"]


def test_the_table_has_every_state():
    assert list(TABLE) == list(State)


@pytest.mark.parametrize("state", State)
async def test_an_actor_whose_sandbox_lives_comes_where_the_table_says(state):
    life, performer = await come_to_rest(state, SURVIVOR)
    assert life.actor.state is TABLE[state][0]
    is_taken_over = performer.taken_over == [SURVIVOR]
    assert is_taken_over is (life.actor.state is State.RUNNING)
    assert (Resource.SANDBOX in life.actor.held) is is_taken_over


@pytest.mark.parametrize("state", State)
async def test_an_actor_whose_sandbox_is_gone_comes_where_the_table_says(state):
    life, performer = await come_to_rest(state)
    assert life.actor.state is TABLE[state][1]
    assert performer.taken_over == []
    assert life.actor.held == ()


@pytest.mark.parametrize("state", [State.RESTORING, State.VERIFYING])
async def test_a_restore_that_was_cut_off_leads_back_to_its_snapshot(state):
    life, _ = await come_to_rest(state, SURVIVOR, origin=a_snapshot())
    assert life.actor.state is State.SUSPENDED


@pytest.mark.parametrize("survivors", [(SURVIVOR, SURVIVOR), (SURVIVOR,)], ids=["two", "one that cannot be"])
async def test_what_cannot_be_gone_on_with_is_told(survivors):
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING, held=(Resource.SANDBOX,), last_good=a_snapshot()))
    async with a_stand(ports) as stand:
        stand.prepare["a1"] = _cannot
        await recover(ports.as_ports, STATE, stand.worker, Survey(alive={"a1": survivors}, dead=()))
        await stand.until(State.FAILED)
        problem = stand.life().actor.problem
        assert problem.reason == "SupervisorRestarted"
        assert ("2 sandboxes" if len(survivors) > 1 else "could not be gone on with") in problem.message
        assert a_snapshot().id in problem.hint


def _cannot(performer):
    performer.take_over_error = failing()


async def test_a_fault_of_ours_while_one_is_taken_over_costs_its_sandbox_and_not_its_memory(logs):
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING))
    async with a_stand(ports) as stand:
        stand.prepare["a1"] = lambda performer: setattr(performer, "take_over_error", ZeroDivisionError())
        await recover(ports.as_ports, STATE, stand.worker, Survey(alive={"a1": (SURVIVOR,)}, dead=()))
        await stand.until(State.FAILED)
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["fault"]


async def test_gpus_of_what_could_not_be_ended_are_nobody_elses_though_another_sandbox_of_the_actor_was():
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING, held=(Resource.GRANT, Resource.SANDBOX)))
    stays = attrs.evolve(SURVIVOR, record=a_record(activation="a2"))
    ports.files.put(STATE.activation("a2") / "sandbox.json", b"x")
    ports.files.fail("remove_tree", STATE.activation("a2"), 5)
    async with a_stand(ports) as stand:
        grants = (Grant("main", ("GPU-1",)),)
        assert stand.worker.gpus.keep("a1", grants, SpecFacts(identity="00ff", driver="550.90.07"))
        stand.prepare["a1"] = lambda performer: performer.answers.update({c.RollBack: failing()})
        await recover(ports.as_ports, STATE, stand.worker, Survey(alive={"a1": (SURVIVOR, stays)}, dead=()))
        await stand.until(State.FAILED)
        await settled()
        assert stand.worker.gpus.grants("a1") == grants


async def test_what_cannot_be_ended_is_held_on_to_and_undone_by_the_actor_itself():
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING, held=(Resource.SANDBOX,)))
    ports.files.put(STATE.activation("a1") / "sandbox.json", b"x")
    ports.files.fail("remove_tree", STATE.activation("a1"), 5)
    async with a_stand(ports) as stand:
        stand.prepare["a1"] = _cannot
        await recover(ports.as_ports, STATE, stand.worker, Survey(alive={"a1": (SURVIVOR,)}, dead=()))
        await stand.until(State.FAILED)
        assert stand.performers["a1"].inherited == "a1"
        assert stand.story() == ["RollBack"]
