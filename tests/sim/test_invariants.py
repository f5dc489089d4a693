"""Every checker finds what it is for, in a world that was spoilt for it; and finds nothing in one that was not."""

import signal
from pathlib import Path

import attrs
import orjson
import pytest
import trio

from sim.documents import actor, container, counter
from sim.engine import record_of, run
from sim.hearing import Said
from sim.invariants.registry import INVARIANTS, tally
from sim.invariants.violation import Violation
from sim.world import scenery
from statemachine.states import State
from tests.sim.spoiling import a_move, files, looked_at, names, put, running, spoilt, suspended


def test_a_world_in_which_all_went_well_violates_nothing():
    looks = []

    async def life(here):
        looks.append(looked_at(here))
        await running(here, actor("a1", container("one"), container("two", ["sh", "-c", "sleep 0.2; exit 0"])))
        looks.append(looked_at(here))
        await here.suspend()
        looks.append(looked_at(here))
        await here.resume()
        await here.stop()
        looks.append(looked_at(here))

    run(life)
    assert looks == [()] * 4
    assert all((each.checked, each.violated) == (4, 0) for each in tally(looks).values())


def test_a_tally_counts_looks_and_not_single_findings():
    twice = (Violation(name="OneSandbox", subject="a1", message="x"),) * 2
    counted = tally([twice, ()])
    assert (counted["OneSandbox"].checked, counted["OneSandbox"].violated) == (2, 1)
    assert list(counted) == list(INVARIANTS)


# ---- NothingLeft


def test_a_sandbox_that_is_left_of_a_suspended_actor_is_found():
    def spoil(here):
        activation = here.world.state.activation("a0123456789abcdef")
        here.world.table.spawn(("runsc-sandbox", f"--root={activation}/runsc", "boot"), parent=1)

    assert names(spoilt(suspended, spoil)) == {"NothingLeft"}


def test_a_directory_that_is_left_of_an_activation_is_found():
    def spoil(here):
        put(here, here.world.state.activation("a0123456789abcdef") / "runsc" / "x.state", b"{}")

    (found,) = spoilt(suspended, spoil)
    assert found.name == "NothingLeft"
    assert "its directory left of nobody" in found.message


def test_a_snapshot_without_a_manifest_is_found():
    def spoil(here):
        put(here, files(here).snapshots / "s0123456789abcdef" / "pages.img", b"x")

    assert names(spoilt(suspended, spoil)) == {"NothingLeft"}


def test_a_lock_of_a_dead_life_is_found():
    async def restarted(here):
        await running(here)
        await here.restart()
        await trio.sleep(0.5)

    def spoil(here):
        node = scenery.put_file(here.world.disk, here.world.state.root / "other")
        here.world.disk.lock(node, here.world.incarnations[0])

    assert names(spoilt(restarted, spoil)) == {"NothingLeft"}


# ---- OneSandbox


def test_a_running_actor_without_a_sandbox_is_found():
    def spoil(here):
        here.world.kill_sandbox("a1")  # and nobody has had the time to notice

    assert "OneSandbox" in names(spoilt(running, spoil))


def test_two_sandboxes_of_one_actor_are_found():
    async def two(here):
        await running(here)
        await here.submit(counter("a2"))
        await here.wait(State.RUNNING, "a2")
        await trio.sleep(0.5)

    def spoil(here):
        for name in here.world.disk.find_directory(here.world.state.sandboxes).entries:
            path = here.world.state.activation(name) / "sandbox.json"
            put(here, path, orjson.loads(here.world.read(path)) | {"actor": "a1"})

    found = spoilt(two, spoil)
    assert any("has 2 sandboxes" in each.message for each in found)
    assert any("a2" in each.subject and "has no sandbox" in each.message for each in found)


def test_a_container_that_has_ended_in_the_sandbox_of_a_running_actor_is_found():
    def spoil(here):
        (sandbox,) = here.world.execution.sandboxes.values()
        container = next(each for each in sandbox.sentry.containers.values() if each.name == "main")
        container.stop(7)

    assert any("container main is stopped" in each.message for each in spoilt(running, spoil))


# ---- StatusTellsTheTruth


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "Running"),
        ("generation", 7),
        ("desiredState", "Terminated"),
        ("lastGoodSnapshot", None),
        ("containers", [{"name": "main", "state": "Exited", "exitCode": 0}]),
        ("error", {"reason": "Internal"}),
        ("uid", "a2"),
    ],
)
def test_a_status_that_says_something_else_is_found(field, value):
    def spoil(here):
        put(here, files(here).status, here.status_file() | {field: value})

    (found,) = spoilt(suspended, spoil)
    assert found.name == "StatusTellsTheTruth"
    assert f"says {field}" in found.message


def test_a_supervisor_that_says_something_else_than_its_journal_is_found():
    def spoil(here):
        record = record_of(here.world)
        return attrs.evolve(record, moves=(*record.moves, a_move(here, "Suspended", "Running")))

    assert "StatusTellsTheTruth" in names(spoilt(suspended, spoil))


# ---- FrozenIsNotRunning


def test_a_frozen_actor_that_is_called_running_is_found():
    def spoil(here):
        (sandbox,) = here.world.execution.sandboxes.values()
        sandbox.sentry.pauses = 1

    assert names(spoilt(running, spoil)) == {"FrozenIsNotRunning"}


def test_a_stopped_sandbox_of_a_running_actor_is_found():
    def spoil(here):
        (sandbox,) = here.world.sandboxes_of("a1")
        here.world.table.signal(sandbox, signal.SIGSTOP)

    assert names(spoilt(running, spoil)) == {"FrozenIsNotRunning"}


# ---- WhatWasToldIsKept


def test_an_actor_that_was_told_of_and_is_gone_is_found():
    def spoil(here):
        record = record_of(here.world)
        moves = [attrs.evolve(move, actor="a2") for move in record.moves]
        return attrs.evolve(record, moves=(*record.moves, *moves))

    assert names(spoilt(suspended, spoil)) == {"WhatWasToldIsKept"}


def test_a_suspended_actor_that_a_later_life_finds_in_another_state_is_found():
    def spoil(here):
        record = record_of(here.world)
        later = [a_move(here, "Running", "Failed", life=2), a_move(here, "Failed", "Suspended", life=2)]
        return attrs.evolve(record, moves=(*record.moves, *later))

    assert names(spoilt(suspended, spoil)) == {"WhatWasToldIsKept"}


def test_a_generation_that_goes_back_is_found():
    def spoil(here):
        record = record_of(here.world)
        ahead = Said(1.0, 1, "info", "adopted", {"actor": "a1", "generation": 5})
        return attrs.evolve(record, log=(*record.log, ahead))

    (found,) = spoilt(suspended, spoil)
    assert found.name == "WhatWasToldIsKept"
    assert "followed generation 5; on disk is 1" in found.message


# ---- DeadlinesKept


@pytest.mark.parametrize("ends", [True, False])
def test_a_state_that_lasts_longer_than_its_deadline_is_found(ends):
    def spoil(here):
        record = record_of(here.world)
        late = [a_move(here, "Suspended", "Assigned", at_s=record.virtual_s)]
        late += [a_move(here, "Assigned", "Suspended", at_s=record.virtual_s + 1000)] if ends else []
        return attrs.evolve(record, moves=(*record.moves, *late), virtual_s=record.virtual_s + 1000)

    assert "DeadlinesKept" in names(spoilt(suspended, spoil))


def test_every_invariant_has_a_test_that_violates_it():
    here = Path(__file__).parent
    text = "".join(path.read_text() for path in (*here.glob("test_invariants*.py"), here / "test_cgroups.py"))
    assert [name for name in INVARIANTS if f'"{name}"' not in text] == []
