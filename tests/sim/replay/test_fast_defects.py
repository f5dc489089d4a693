"""Defects, planted one at a time: the invariants of a replay find each, and find nothing without it."""

import pytest

from sim.fleet.placing import Placing
from sim.fleet.schedulers import Place, Room
from sim.replay.fast import kernel, performing
from sim.replay.results import Verdict
from statemachine.commands import CreateSandbox, StopContainers
from statemachine.events import SandboxCreated, Thawed
from tests.sim.replay.fast_runs import actor, replayed, worker

RECORDS = (
    worker(gpus=2), actor("a"), actor("b", for_s=30.0),
    actor("c", at_s=2.0, for_s=20.0), actor("d", at_s=3.0, for_s=5.0),
)  # fmt: skip


def promise_the_same_room_again(monkeypatch):
    monkeypatch.setattr(Place, "take", lambda place, claim, times: None)


def give_room_back_twice(monkeypatch):
    once = Room.give_back
    monkeypatch.setattr(Room, "give_back", lambda room, name, claim: (once(room, name, claim), once(room, name, claim)))


def offer_room_to_nobody(monkeypatch):
    monkeypatch.setattr(Placing, "offer", lambda placing, place: None)


def keep_gpus_that_were_undone(monkeypatch):
    monkeypatch.setattr(kernel.Kernel, "_give_back", lambda kernel, life: None)


def let_a_step_take_as_long_as_it_likes(monkeypatch):
    def perform(kernel, life, _command):
        kernel.begin_step(life)
        life.answer = kernel.after(100.0, life, SandboxCreated())

    monkeypatch.setitem(performing.PERFORM, CreateSandbox, perform)


def let_a_stop_end_without_an_answer(monkeypatch):
    waits_for_nobody = performing.plain_of("stop", Thawed())
    monkeypatch.setitem(performing.PERFORM, StopContainers, waits_for_nobody)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (promise_the_same_room_again, "GpusWithinWorker"),
        (give_room_back_twice, "GpusWithinWorker"),
        (offer_room_to_nobody, "NobodyWaitsForNothing"),
        (keep_gpus_that_were_undone, "CapacityGivenBack"),
        (let_a_step_take_as_long_as_it_likes, "DeadlinesKept"),
        (let_a_stop_end_without_an_answer, "EveryActorRests"),
    ],
)
def test_a_planted_defect_is_found(monkeypatch, plant, name):
    overrides = {"suspension.oversubscribe": False}
    assert replayed(*RECORDS, overrides=overrides).verdict is Verdict.HELD
    plant(monkeypatch)
    result = replayed(*RECORDS, overrides=overrides)
    assert result.verdict is Verdict.VIOLATED
    assert result.invariants[name].violated
    assert any(violation.startswith(name) for violation in result.violations)


def test_that_nobody_is_suspended_for_whoever_waits_is_found(monkeypatch):
    assert replayed(*RECORDS[:3]).verdict is Verdict.HELD
    monkeypatch.setattr(Placing, "look_for_room", lambda placing, at_s: None)
    (violation,) = replayed(worker(), actor("a"), actor("b", at_s=2.0)).violations
    assert violation == "NobodyWaitsForNothing: b waits, and is not given the room of a, who is idle"
