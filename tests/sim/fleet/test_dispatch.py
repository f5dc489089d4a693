"""The fleet alone: facts in, orders out, with nobody who carries them out."""

import math

import pytest

from sim.fleet.config import read_config
from sim.fleet.dispatch import Fleet
from sim.fleet.facts import (
    AddWorker,
    DrainWorker,
    Elapsed,
    ForgetActor,
    GpusUsable,
    Inject,
    Moved,
    RemoveWorker,
    ResumeActor,
    SnapshotFrom,
    StartActor,
    StopActor,
    SuspendActor,
    Uploaded,
    WorkerGone,
    WorkerReady,
)
from sim.fleet.timers import TIDIED_FROM
from sim.traces.records import (
    Assignment,
    Container,
    FaultRecord,
    Resume,
    Suspend,
    Terminate,
    WorkerAdd,
    WorkerDrain,
    WorkerRemove,
)
from statemachine.reasons import Reason
from statemachine.states import State

UP = (State.RUNNING,)
DOWN = (State.SUSPENDING, State.RELEASING, State.SUSPENDED)


class Story:
    """A fleet that is told things, one after the other, at times that are given."""

    def __init__(self, workers=(("w1", 1),), **overrides):
        self.fleet = Fleet(read_config(None, {name.replace("__", "."): value for name, value in overrides.items()}))
        self.at_s = 0.0
        for name, gpus in workers:
            assert self.tell(WorkerAdd(at_s=0.0, worker=name, gpus=gpus)) == [
                AddWorker(WorkerAdd(at_s=0.0, worker=name, gpus=gpus))
            ]
            self.tell(WorkerReady(0.0, name))

    def tell(self, fact):
        return list(self.fleet.take(fact))

    def at(self, at_s):
        self.at_s = at_s
        return self

    def assign(self, actor, gpus=1, **more):
        return self.tell(
            Assignment(at_s=self.at_s, actor=actor, containers=(Container(name="main", gpus=gpus),), **more)
        )

    def moves(self, actor, *states, worker="w1", **more):
        orders = []
        for state in states:
            orders += self.tell(Moved(self.at_s, actor, worker, state, **more))
        return orders

    def runs(self, actor, worker="w1", **more):
        self.assign(actor, **more)
        self.moves(actor, *UP, worker=worker)

    def elapses(self):
        self.at_s = self.fleet.due_s
        return self.tell(Elapsed(self.at_s))


def started(order):
    return order.actor, order.worker, order.snapshot_from


def test_an_actor_goes_where_there_is_room_and_the_next_one_waits_for_it():
    story = Story()
    assert [started(order) for order in story.assign("a")] == [("a", "w1", SnapshotFrom.COLD)]
    assert story.assign("b", for_s=5.0) == []
    story.moves("a", *UP)
    assert story.tell(Terminate(at_s=1.0, actor="a")) == [StopActor("a", "w1")]
    orders = story.at(2.0).moves("a", State.STOPPING, State.TERMINATED)
    assert [order for order in orders if isinstance(order, ForgetActor)] == [ForgetActor("a")]
    assert [started(order) for order in orders if isinstance(order, StartActor)] == [("b", "w1", SnapshotFrom.COLD)]


def test_whoever_waits_while_an_actor_is_idle_has_it_suspended_for_it():
    story = Story(suspension__busy_s=10.0, suspension__idle_min_s=1.0)
    story.runs("a")
    assert story.at(5.0).assign("b") == []
    assert story.fleet.due_s == 11.0
    assert story.elapses() == [SuspendActor("a", "w1")]
    orders = story.at(12.0).moves("a", *DOWN)
    assert [started(order) for order in orders] == [("b", "w1", SnapshotFrom.COLD)]


def test_the_one_that_was_asked_for_longest_ago_is_suspended():
    story = Story(workers=(("w1", 2),), suspension__busy_s=0.0, suspension__idle_min_s=0.0)
    story.runs("a")
    story.at(1.0).runs("b")
    story.at(2.0).tell(Resume(at_s=2.0, actor="a"))
    assert story.at(3.0).assign("c") == [SuspendActor("b", "w1")]


def test_the_one_that_is_idle_longest_is_suspended_and_not_the_one_that_worked_long():
    story = Story(workers=(("w1", 2),), suspension__busy_s=0.0, suspension__idle_min_s=0.0)
    story.runs("a")
    story.runs("b")
    story.tell(Resume(at_s=0.0, actor="a", busy_s=100.0))
    story.at(1.0).tell(Resume(at_s=1.0, actor="b", busy_s=1.0))
    assert story.at(103.0).assign("c") == [SuspendActor("b", "w1")]


def test_whoever_waits_gets_the_place_of_somebody_idle_once_a_gpu_that_was_lost_is_let_go():
    story = Story(workers=(("w1", 2),), suspension__busy_s=0.0, suspension__idle_min_s=0.0)
    story.runs("a", for_s=1000.0)
    story.runs("b")
    story.tell(GpusUsable(1.0, "w1", 1))
    assert story.at(2.0).assign("c", for_s=10.0) == []  # both GPUs are held, and one of them is lost
    assert story.moves("a", State.ROLLING_BACK, State.FAILED, reason=Reason.GPU_LOST) == []
    assert story.elapses() == [SuspendActor("b", "w1")]
    assert story.at_s == 2.0


def test_an_actor_is_busy_with_the_longest_request_that_came_before_it_ran():
    story = Story(suspension__busy_s=1.0, suspension__idle_timeout_s=10.0)
    story.runs("a")
    story.at(1.0).tell(Suspend(at_s=1.0, actor="a"))
    story.moves("a", *DOWN)
    story.at(20.0).tell(Resume(at_s=20.0, actor="a", busy_s=50.0))
    story.at(20.1).tell(Resume(at_s=20.1, actor="a", busy_s=0.1))
    story.at(21.0).moves("a", *UP)
    while not (orders := story.elapses()):
        pass
    assert orders == [SuspendActor("a", "w1")]
    assert story.at_s == 81.0


def test_as_many_are_suspended_as_make_room_on_one_worker():
    story = Story(workers=(("w1", 2), ("w2", 2)), suspension__busy_s=0.0, suspension__idle_min_s=0.0)
    for name in "abcd":
        story.assign(name)
    for name, worker in zip("abcd", ("w1", "w1", "w2", "w2"), strict=True):
        story.moves(name, *UP, worker=worker)
    assert story.at(1.0).assign("e", gpus=2) == [SuspendActor("a", "w1"), SuspendActor("b", "w1")]


def test_room_that_comes_free_is_enough_together_with_somebody_who_was_idle_all_along():
    story = Story(workers=(("w1", 3),), suspension__busy_s=0.0, suspension__idle_min_s=0.0)
    story.runs("idle")
    story.runs("busy", gpus=2, for_s=100.0)
    assert story.at(1.0).assign("large", gpus=3) == []
    story.at(2.0).moves("busy", State.STOPPING, State.TERMINATED)
    assert story.elapses() == [SuspendActor("idle", "w1")]


def test_an_actor_that_works_until_it_ends_is_never_idle():
    story = Story(suspension__busy_s=0.0, suspension__idle_min_s=0.0, suspension__idle_timeout_s=1.0)
    story.runs("a", for_s=1000.0)
    assert story.at(500.0).assign("b") == []
    assert story.fleet.due_s == math.inf


def test_an_actor_that_nobody_asks_for_is_suspended_after_its_time_and_activity_puts_that_off():
    story = Story(suspension__busy_s=1.0, suspension__idle_timeout_s=10.0)
    story.runs("a")
    story.tell(Resume(at_s=8.0, actor="a", busy_s=2.0))
    assert story.elapses() == []
    assert story.elapses() == [SuspendActor("a", "w1")]
    assert story.at_s == 20.0


def test_a_suspended_actor_goes_back_to_the_worker_that_has_its_snapshot():
    story = Story(workers=(("w1", 1), ("w2", 1)))
    story.runs("a")
    assert story.tell(Suspend(at_s=1.0, actor="a")) == [SuspendActor("a", "w1")]
    story.moves("a", *DOWN)
    assert story.tell(Resume(at_s=2.0, actor="a")) == [ResumeActor("a", "w1", SnapshotFrom.LOCAL, 2.0)]


def test_after_waiting_for_that_worker_it_goes_elsewhere_through_the_store():
    story = Story(workers=(("w1", 1), ("w2", 1)), placement__locality_wait_s=3.0)
    story.runs("a")
    story.tell(Suspend(at_s=1.0, actor="a"))
    story.moves("a", *DOWN)
    story.runs("b", for_s=99.0)
    story.tell(Uploaded(1.5, "a", "w1"))
    assert story.tell(Resume(at_s=2.0, actor="a")) == []
    orders = story.elapses()
    assert story.at_s == 5.0
    assert [started(order) for order in orders if isinstance(order, StartActor)] == [("a", "w2", SnapshotFrom.STORE)]
    assert orders[-1] == StopActor("a", "w1")


def test_it_waits_for_that_worker_anew_each_time():
    story = Story(workers=(("w1", 1), ("w2", 1)), placement__locality_wait_s=60.0)
    for at_s, ends in ((0.0, True), (30.0, False)):
        story.at(at_s)
        if not at_s:
            story.runs("a")
        story.tell(Suspend(at_s=at_s, actor="a"))
        story.moves("a", *DOWN)
        other = f"b{at_s:.0f}"
        assert [started(order) for order in story.assign(other, for_s=99.0)] == [(other, "w1", SnapshotFrom.COLD)]
        story.moves(other, *UP)
        story.tell(Uploaded(at_s + 5.0, "a", "w1"))
        assert story.tell(Resume(at_s=at_s + 10.0, actor="a")) == []
        if ends:
            orders = story.at(20.0).moves(other, State.STOPPING, State.TERMINATED)
            assert ResumeActor("a", "w1", SnapshotFrom.LOCAL, 10.0) in orders
            story.moves("a", *UP)
    story.elapses()
    assert story.at_s == 70.0  # the first time it would have gone then
    assert [started(order) for order in story.elapses()[:1]] == [("a", "w2", SnapshotFrom.STORE)]
    assert story.at_s == 100.0


def test_who_waits_keeps_its_turn_when_its_snapshot_comes_to_the_store():
    story = Story(workers=(("w1", 2),), placement__locality_wait_s=60.0)
    story.runs("a")
    story.runs("b")
    for name in "ab":
        story.tell(Suspend(at_s=1.0, actor=name))
        story.moves(name, *DOWN)
    story.runs("c", gpus=2, for_s=99.0)
    for name in "ab":
        assert story.tell(Resume(at_s=2.0, actor=name)) == []
    assert story.tell(Uploaded(3.0, "a", "w1")) == []
    orders = story.at(4.0).moves("c", State.STOPPING, State.TERMINATED)
    assert [order.actor for order in orders if isinstance(order, ResumeActor)] == ["a", "b"]


def test_what_no_store_has_waits_for_its_worker():
    story = Story(workers=(("w1", 1), ("w2", 1)), placement__locality_wait_s=0.0)
    story.runs("a")
    story.tell(Suspend(at_s=1.0, actor="a"))
    story.moves("a", *DOWN)
    story.runs("b", for_s=99.0)
    assert story.tell(Resume(at_s=2.0, actor="a")) == []
    assert [started(order) for order in story.tell(Uploaded(3.0, "a", "w1"))[:1]] == [("a", "w2", SnapshotFrom.STORE)]


@pytest.mark.parametrize(("stored", "cold"), [(True, False), (False, False), (False, True)])
def test_who_was_on_a_lost_worker_comes_back_from_the_store_or_not_at_all(stored, cold):
    story = Story(workers=(("w1", 1), ("w2", 1)), loss__cold_start=cold)
    story.runs("a")
    story.tell(Suspend(at_s=1.0, actor="a"))
    story.moves("a", *DOWN)
    if stored:
        story.tell(Uploaded(2.0, "a", "w1"))
    story.tell(Resume(at_s=3.0, actor="a"))
    story.moves("a", *UP)
    assert story.tell(WorkerRemove(at_s=4.0, worker="w1")) == [RemoveWorker("w1")]
    orders = story.tell(WorkerGone(4.0, "w1"))
    begun = [started(order) for order in orders if isinstance(order, StartActor)]
    if stored or cold:
        assert begun == [("a", "w2", SnapshotFrom.STORE if stored else SnapshotFrom.COLD)]
    else:
        assert orders == [ForgetActor("a")]
        assert story.fleet.lost == 1


def test_a_drained_worker_goes_when_all_on_it_is_saved_and_they_go_on_elsewhere():
    story = Story(workers=(("w1", 1), ("w2", 1)))
    story.runs("a")
    assert story.tell(WorkerDrain(at_s=1.0, worker="w1")) == [DrainWorker("w1")]
    assert story.moves("a", *DOWN) == []
    orders = story.tell(Uploaded(2.0, "a", "w1"))
    assert started(orders[0]) == ("a", "w2", SnapshotFrom.STORE)
    assert orders[1:] == [StopActor("a", "w1"), RemoveWorker("w1")]


def test_a_worker_that_is_added_again_while_it_is_drained_begins_again_when_it_is_gone():
    story = Story()
    story.runs("a", worker="w1")
    story.tell(WorkerDrain(at_s=1.0, worker="w1"))
    assert story.tell(WorkerAdd(at_s=1.5, worker="w1", gpus=2)) == []
    story.at(2.0).moves("a", *DOWN)
    assert story.tell(Uploaded(2.0, "a", "w1")) == [RemoveWorker("w1")]
    assert story.tell(WorkerGone(2.0, "w1")) == [AddWorker(WorkerAdd(at_s=1.5, worker="w1", gpus=2))]
    (start,) = story.tell(WorkerReady(3.0, "w1"))
    assert started(start) == ("a", "w1", SnapshotFrom.STORE)
    assert story.fleet.skipped == 0


def test_who_runs_on_a_drained_worker_is_waited_for_only_from_then_on():
    story = Story(workers=(("w1", 1), ("w2", 1)))
    story.runs("a")
    story.tell(WorkerDrain(at_s=500.0, worker="w1"))
    story.at(500.0).moves("a", *DOWN)
    (start, *_) = story.tell(Uploaded(502.0, "a", "w1"))
    assert isinstance(start, StartActor)
    assert start.asked_s == 500.0


@pytest.mark.parametrize(("runs", "asked_s"), [(True, 300.0), (False, 0.0)])
def test_who_loses_its_worker_is_waited_for_from_then_on_if_it_ran_and_else_as_before(runs, asked_s):
    story = Story(workers=(("w1", 1), ("w2", 1)), loss__cold_start=True)
    story.assign("a")
    story.moves("a", *(UP if runs else ()))
    (start,) = (order for order in story.tell(WorkerGone(300.0, "w1")) if isinstance(order, StartActor))
    assert start.asked_s == asked_s


def test_whose_sandbox_dies_is_waited_for_from_then_on():
    story = Story(retry__delay_s=5.0)
    story.runs("a")
    story.at(300.0).moves("a", State.ROLLING_BACK, State.FAILED, reason=Reason.SANDBOX_DIED)
    assert story.elapses() == [ResumeActor("a", "w1", SnapshotFrom.COLD, 300.0)]


def test_what_was_waited_for_of_actors_that_have_ended_is_not_kept():
    story = Story(suspension__idle_timeout_s=1e9)
    for number in range(3 * TIDIED_FROM):
        name = f"a{number}"
        story.runs(name)
        story.tell(Terminate(at_s=0.0, actor=name))
        story.moves(name, State.STOPPING, State.TERMINATED)
    story.runs("last")
    assert len(story.fleet.timers) <= TIDIED_FROM + 1
    while not (orders := story.elapses()):
        pass
    assert orders == [SuspendActor("last", "w1")]


def test_a_drain_that_lasts_too_long_is_ended():
    story = Story(drain__timeout_s=60.0)
    story.runs("a")
    story.tell(WorkerDrain(at_s=1.0, worker="w1"))
    assert story.elapses() == [RemoveWorker("w1")]
    assert story.at_s == 61.0


def test_an_activation_that_fails_is_tried_again_as_often_as_the_config_says():
    story = Story(retry__times_max=2, retry__delay_s=5.0)
    story.assign("a")
    tries = 0
    while True:
        story.moves("a", State.ROLLING_BACK, State.FAILED, reason=Reason.RUNTIME_FAILED)
        if story.fleet.due_s == math.inf:
            break
        tries += 1
        assert story.elapses() == [ResumeActor("a", "w1", SnapshotFrom.COLD, 0.0)]
    assert tries == 2


def test_room_stays_promised_while_a_cleanup_that_failed_may_have_left_something():
    story = Story(retry__times_max=0)
    story.assign("a")
    story.assign("b", for_s=9.0)
    assert story.moves("a", State.ROLLING_BACK, State.FAILED, holds=True) == []
    assert [started(order) for order in story.moves("a", State.ROLLING_BACK, State.FAILED)] == [
        ("b", "w1", SnapshotFrom.COLD)
    ]


def test_a_higher_generation_that_comes_while_the_actor_ends_begins_when_it_has_ended():
    story = Story()
    story.runs("a")
    story.tell(Terminate(at_s=1.0, actor="a"))
    assert story.assign("a", generation=2) == []
    orders = story.moves("a", State.STOPPING, State.TERMINATED)
    assert [order.assignment.generation for order in orders if isinstance(order, StartActor)] == [2]


@pytest.mark.parametrize(
    "record",
    [
        Suspend(at_s=1.0, actor="nobody"),
        Resume(at_s=1.0, actor="nobody"),
        Terminate(at_s=1.0, actor="nobody"),
        WorkerRemove(at_s=1.0, worker="nowhere"),
        WorkerDrain(at_s=1.0, worker="nowhere"),
        WorkerAdd(at_s=1.0, worker="w1"),
        Assignment(at_s=1.0, actor="a"),
    ],
)
def test_a_record_that_means_nothing_is_counted_and_passed_over(record):
    story = Story()
    story.runs("a")
    assert story.tell(record) == []
    assert story.fleet.skipped == 1


def test_a_fault_is_handed_on():
    record = FaultRecord(at_s=1.0, fault="kill-sandbox", actor="a")
    assert Story().tell(record) == [Inject(record)]
