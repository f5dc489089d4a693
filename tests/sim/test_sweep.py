"""The fault sweep: what it lists, that each fault fires, what it says; and a share of it, swept."""

import attrs
import pytest

from sim import promises
from sim import spots as spots_module
from sim.faults import Cut, Halfway, Hang, Lie
from sim.invariants.violation import Violation
from sim.lies import LIES
from sim.lives import LIVES
from sim.spots import Kind, spots_of
from sim.sweep import disturb, sweep
from sim.walker import How, every, points_of, walk
from sim.world.calls import CHANGING
from statemachine.reasons import Reason
from statemachine.states import State

EVERY = 61
"""Every which fault comes in the usual run of the tests; together some 25 of 1,480."""


@pytest.fixture(scope="module")
def spots():
    return spots_of()


def test_a_fault_anywhere_in_a_life_ends_in_a_promised_state_with_the_right_reason():
    report = sweep(share=every(EVERY, first=3))
    assert len(report.swept) >= 20
    assert not report.violations, str(report)


@pytest.mark.long
@pytest.mark.parametrize("first", range(4))
def test_every_sixteenth_fault_ends_as_promised(first):
    report = sweep(seed=1, share=every(16, first=first * 4))
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(8))
def test_every_fault_of_every_call_ends_as_promised(first):
    report = sweep(share=every(8, first=first))
    assert not report.violations, str(report)


def is_of_the_upload(spot):
    """Until it is suspended, everything is as without a store."""
    return spot.op == "upload" or spot.port == "stores"


def is_of_the_volumes(spot):
    """What is asked only because there is a volume, or a hook."""
    return "olumes" in f"{spot.method} {spot.argument}" or " exec " in spot.argument


OTHERS = {"stored": is_of_the_upload, "durable": is_of_the_volumes}
"""Of the other actors, what the life of the first has not: some 180 and 265 faults."""


def of_its_own(name, nth, *, first=0):
    return lambda spots: every(nth, first=first)([spot for spot in spots if OTHERS[name](spot)])


@pytest.mark.parametrize("name", OTHERS)
def test_a_fault_anywhere_in_what_an_upload_or_volumes_and_hooks_ask_for_ends_as_promised(name):
    report = sweep(name, share=of_its_own(name, 37, first=5))
    assert len(report.swept) >= 5
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("name", OTHERS)
def test_every_fault_in_what_an_upload_or_volumes_and_hooks_ask_for_ends_as_promised(name, first):
    report = sweep(name, share=of_its_own(name, 4, first=first))
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(4))
def test_a_crash_at_every_point_of_the_life_violates_nothing(first):
    report = walk(LIVES["suspend-resume"], share=lambda points: points[first::4], how=tuple(How))
    assert not report.violations, str(report)


# ---- spots


def test_every_call_of_the_life_that_changes_anything_meets_every_kind_of_fault(spots):
    kinds: dict[tuple[str, str], set[Kind]] = {}
    for spot in spots:
        kinds.setdefault((spot.port, spot.method), set()).add(spot.kind)
    for call in {("files", "replace"), ("files", "append_durably"), ("files", "remove_tree"), ("processes", "run")}:
        assert kinds[call] == set(Kind)
    for call in kinds.keys() & CHANGING - {("processes", "close"), ("processes", "signal"), ("net", "close")}:
        assert {Kind.FAIL, Kind.SLOW} <= kinds[call], call


def test_the_points_of_the_walk_are_calls_of_the_sweep(spots):
    points, _ = points_of(LIVES["suspend-resume"])
    assert len({spot.number for spot in spots}) > len(points)


def test_every_lie_about_a_call_of_the_life_is_told(spots):
    for spot in spots:
        if spot.kind is Kind.LIE:
            assert isinstance(spot.what, Lie)
    told = {(spot.port, spot.method, spot.what.how) for spot in spots if isinstance(spot.what, Lie)}
    called = {(spot.port, spot.method) for spot in spots}
    assert told == {(*call, how) for call in called & set(LIES) for how in LIES[call]}


def test_a_replacement_is_cut_after_each_of_its_parts_and_a_checkpoint_in_each_of_its_waits(spots):
    manifest = [spot for spot in spots if spot.argument.endswith("/manifest.json") and isinstance(spot.what, Halfway)]
    assert [spot.fault for spot in manifest if spot.method == "replace"] == [
        f"half:{part}:{how}"
        for part in ("created", "written", "synced", "renamed", "directory synced")
        for how in ("EIO", "kill", "power")
    ]
    saves = [spot for spot in spots if " checkpoint " in spot.argument and isinstance(spot.what, Cut)]
    # Loading itself, before it asks, and while the sandbox saves.
    assert [spot.fault for spot in saves] == ["half:1", "half:2", "half:3"]


def test_a_spot_knows_where_the_actor_was_and_what_was_asked_for(spots):
    save = next(spot for spot in spots if " checkpoint " in spot.argument)
    assert (save.op, save.state) == ("suspend", State.SUSPENDING)
    restore = next(spot for spot in spots if " restore " in spot.argument)
    assert (restore.op, restore.state) == ("resume", State.RESTORING)


# ---- reports


def test_case_042_a_fault_that_does_not_come_is_a_violation(spots):
    absent = attrs.evolve(next(each for each in spots if each.method == "replace"), what=Halfway(at="no such part"))
    assert "FaultFired" in {each.name for each in disturb(absent).violations}


def test_a_reason_that_is_not_right_is_a_violation_with_a_line_that_repeats_it(spots, monkeypatch):
    spot = next(spot for spot in spots if " restore " in spot.argument and isinstance(spot.what, Hang))
    assert disturb(spot).violations == ()
    monkeypatch.setattr(promises, "LATE", frozenset({Reason.RUNTIME_FAILED}))
    swept = disturb(spot)
    assert {each.name for each in swept.violations} == {"Promised"}
    assert "the reason is StepDeadlineExceeded" in str(swept.violations[0])
    assert swept.repro == f"python -m sim.cli.sweep local --seed 0 --call {spot.number} --fault 'hang'"


def test_an_upload_that_does_not_come_is_a_violation(monkeypatch):
    sending = [spot for spot in spots_of("stored") if spot.method == "put_part_of" and spot.kind is Kind.SLOW]
    assert disturb(sending[0], "stored").violations == ()
    monkeypatch.setattr(spots_module, "UPLOADED_S", 1.0)
    (found,) = disturb(sending[0], "stored").violations
    assert found.name == "Promised"
    assert "upload did not come, the actor is Suspended, and the reason is WaitTimeout" in found.message


def test_every_excuse_is_about_a_fault_that_there_is(spots):
    for excuse in promises.EXCUSES:
        assert any(
            promises.is_excused(spot, Violation(name=name, subject="a1", message=""))
            for spot in spots
            for name in excuse.names
        ), excuse.why
