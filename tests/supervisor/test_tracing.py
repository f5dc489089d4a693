"""Spans of what happens: one for each activation and each of its steps, with the words of the log."""

from contextlib import asynccontextmanager

import pytest

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, ContainerFate
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.observing import Ending
from supervisor.tracing import EVENTS_MAX, Tracing
from tests.fakes.performer import Hold, a_problem, a_snapshot, failing
from tests.fakes.ports import FakePorts
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio


class FakeExport:
    """Keeps what it is given."""

    def __init__(self):
        self.spans = []

    def put(self, span):
        self.spans.append(span)

    async def finish(self):
        """Nothing waits."""

    @property
    def names(self):
        return [span.name for span in self.spans]

    def one(self, name):
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def all(self, name):
        return [span for span in self.spans if span.name == name]


class Bench:
    def __init__(self, stand, tracing, export):
        self.stand, self.tracing, self.export = stand, tracing, export

    async def ended(self, generation=9):
        await self.stand.submit(generation=generation, spec__desiredState="Terminated")
        await self.stand.until(State.TERMINATED)


@asynccontextmanager
async def a_bench():
    ports, export = FakePorts(), FakeExport()
    tracing = Tracing(export, ports.wall)
    async with a_stand(ports, observer=tracing) as stand:
        tracing.worker = stand.worker
        yield Bench(stand, tracing, export)


async def test_a_life_is_one_trace_with_a_span_for_each_step_below_that_of_the_activation():
    async with a_bench() as bench:
        await bench.stand.running(generation=3)
        assert bench.export.names == ["assign", "create", "verify"]  # a span is told when it is over
        bench.stand.wall.time_s += 5
        await bench.ended()
    assert bench.export.names == ["assign", "create", "verify", "teardown", "activation"]
    activation = bench.export.one("activation")
    assert {span.trace for span in bench.export.spans} == {activation.trace}
    assert {span.parent for span in bench.export.spans if span is not activation} == {activation.id}
    assert activation.parent is None
    assert len({span.id for span in bench.export.spans}) == 5
    assert activation.attributes == {"actor": "a1", "generation": 3, "to": "Terminated"}
    assert activation.end_s - activation.begin_s == 5
    assert activation.error is None
    create = bench.export.one("create")
    assert create.attributes == {"actor": "a1", "generation": 3, "step": "create", "outcome": "done"}
    assert activation.begin_s <= create.begin_s <= create.end_s <= activation.end_s


async def test_what_happens_beside_the_steps_is_an_event_of_the_activation():
    async with a_bench() as bench:
        life = await bench.stand.running()
        await life.tell_trouble(a_problem(Reason.GPU_ERROR_REPORTED), 2)
        (name,) = life.actor.live
        await life.feed(e.ContainerExited(container=name, exit_code=0))
        await bench.stand.until(State.TERMINATED)
    events = {each.name: each.attributes for each in bench.export.one("activation").events}
    assert events.keys() == {"notice", "ContainerExited"}  # the end of a step tells what came of it
    assert {"reason": "GpuErrorReported", "subject": "thing", "count": 2}.items() <= events["notice"].items()
    exited = {"from": "Running", "to": "Stopping", "container": name, "exit_code": 0}
    assert events["ContainerExited"] == exited
    assert bench.export.one("activation").attributes["reason"] == "Completed"


async def test_a_step_that_fails_is_told_with_its_reason_and_so_is_the_activation():
    async with a_bench() as bench:
        bench.stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await bench.stand.submit()
        await bench.stand.until(State.FAILED)
    create, activation = bench.export.one("create"), bench.export.one("activation")
    about = {"reason": "RuntimeFailed", "subject": "thing"}
    assert create.attributes == {"actor": "a1", "generation": 1, "step": "create", "outcome": "failed", **about}
    assert create.error == activation.error == "a sample of RuntimeFailed"
    assert {"step": "create", "to": "Failed", **about}.items() <= activation.attributes.items()
    assert bench.export.one("teardown").error is None


async def test_a_step_that_is_given_up_is_cancelled_and_no_failure():
    async with a_bench() as bench:
        hold = Hold()
        bench.stand.prepare["a1"] = lambda performer: performer.holds.update({c.CreateSandbox: hold})
        await bench.stand.submit()
        await hold.begun.wait()
        await bench.ended()
    assert bench.export.one("create").attributes["outcome"] == "cancelled"
    assert bench.export.one("create").error is None
    assert bench.export.one("activation").error is None


async def test_each_activation_is_a_trace_of_its_own_and_names_the_snapshot_that_it_came_from():
    async with a_bench() as bench:
        await bench.stand.running()
        await operations.suspend(bench.stand.worker, "a1")
        await bench.stand.until(State.SUSPENDED)
        await operations.resume(bench.stand.worker, "a1")
        await bench.stand.until(State.RUNNING)
        await bench.ended()
    first, second = bench.export.all("activation")
    assert first.trace != second.trace
    assert (first.attributes["to"], first.attributes.get("snapshot")) == ("Suspended", None)
    assert second.attributes["snapshot"] == bench.stand.life().actor.last_good.id
    assert bench.export.one("restore").trace == second.trace
    assert bench.export.one("suspend").trace == first.trace


async def test_an_actor_that_is_tried_again_has_an_activation_for_each_try():
    async with a_bench() as bench:
        backoff = Hold()
        bench.stand.prepare["a1"] = lambda performer: performer.holds.update({c.StartBackoff: backoff})
        life = await bench.stand.running(spec__restartPolicy="OnFailure")
        (name,) = life.actor.live
        await life.feed(e.ContainerExited(container=name, exit_code=1))
        await backoff.begun.wait()
        backoff.let_go()
        await bench.stand.until(State.RUNNING)
        await bench.ended()
    first, second = bench.export.all("activation")
    assert (first.attributes["to"], first.error) == ("BackingOff", first.error)
    assert first.attributes["reason"] == "ContainerFailed"
    assert first.error is not None
    assert (second.attributes["to"], second.error) == ("Terminated", None)
    between = bench.export.one("supervise")
    assert between.parent is None
    assert between.trace not in {first.trace, second.trace}


def an_actor(state, **more):
    return Actor(state=state, containers=(ContainerFate(name="one"),), **more)


class Told:
    """A tracing that is told by hand."""

    def __init__(self):
        self.export, self.wall = FakeExport(), FakePorts().wall
        self.tracing = Tracing(self.export, self.wall)

    def entered(self, state, event=None, before=None, **more):
        actor = an_actor(state, **more)
        self.tracing.entered("a1", actor if before is None else an_actor(before), actor, event)

    def step_ended(self, elapsed_s):
        self.tracing.step_ended("a1", c.CreateSandbox(), Ending.DONE, elapsed_s, None)


async def test_an_activation_that_is_taken_over_begins_there():
    told = Told()
    told.entered(State.RUNNING, e.Recovered(finding=e.Finding.ALIVE, problem=a_problem()), before=State.RUNNING)
    told.wall.time_s += 1
    told.entered(State.SUSPENDED, e.SandboxReleased(), before=State.RELEASING, origin=a_snapshot())
    activation = told.export.one("activation")
    assert [each.name for each in activation.events] == ["Recovered"]
    assert activation.end_s - activation.begin_s == 1


async def test_what_rests_and_begins_nothing_is_no_activation():
    told = Told()
    told.entered(State.SUSPENDED, problem=a_problem())
    told.entered(State.SUSPENDED, e.UploadFailed(snapshot="s1", problem=a_problem()))
    told.entered(State.TERMINATED, e.StopRequested(), before=State.SUSPENDED)
    assert told.export.spans == []


@pytest.mark.parametrize(
    ("state", "reason", "is_error"),
    [
        (State.FAILED, Reason.SANDBOX_DIED, True),
        (State.SUSPENDED, Reason.RESTORED_NOT_SERVING, True),
        (State.SUSPENDED, Reason.WORKER_DRAINING, False),
        (State.TERMINATED, Reason.COMPLETED, False),
        (State.TERMINATED, Reason.SANDBOX_DIED, False),  # it was to end, and has
    ],
)
async def test_an_end_is_an_error_when_nobody_asked_for_it(state, reason, is_error):
    told = Told()
    told.entered(State.ASSIGNED)
    told.entered(state, e.TornDown(), before=State.STOPPING, problem=a_problem(reason))
    activation = told.export.one("activation")
    assert activation.attributes["reason"] == reason
    assert (activation.error is not None) == is_error


async def test_a_calendar_that_is_set_makes_no_span_end_before_it_begins_or_leave_its_activation():
    told = Told()
    told.entered(State.ASSIGNED)
    began_s = told.wall.time_s
    told.step_ended(elapsed_s=100.0)
    told.wall.time_s -= 50
    told.step_ended(elapsed_s=1.0)
    told.entered(State.TERMINATED, e.TornDown(), before=State.STOPPING)
    first, second = told.export.all("create")
    assert (first.begin_s, first.end_s) == (began_s, began_s)
    assert second.begin_s == second.end_s == began_s - 50
    activation = told.export.one("activation")
    assert activation.begin_s == activation.end_s == began_s


async def test_a_span_has_a_bounded_number_of_events():
    told = Told()
    told.entered(State.RUNNING, e.ContainersVerified(), before=State.VERIFYING)
    for _ in range(2 * EVENTS_MAX):
        told.tracing.troubled("a1", a_problem(), 1)
    told.entered(State.FAILED, e.RolledBack(origin=e.OriginVerdict.NONE), before=State.ROLLING_BACK)
    assert len(told.export.one("activation").events) == EVENTS_MAX


async def test_a_life_that_a_fault_has_ended_leaves_nothing_to_the_next_one():
    told = Told()
    told.entered(State.ASSIGNED)
    told.entered(State.ASSIGNED)
    told.step_ended(elapsed_s=0.0)
    told.entered(State.TERMINATED, e.TornDown(), before=State.STOPPING)
    assert told.export.one("create").trace == told.export.one("activation").trace
    assert told.tracing._open == {}


def test_every_step_has_a_name_of_its_own():
    assert "activation" not in set(Step)
