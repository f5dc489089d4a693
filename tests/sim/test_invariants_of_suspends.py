"""The checkers of suspends: each finds what it is for in a world, or a record of one, that was spoilt for it."""

import attrs
import pytest
import trio

from sim.documents import counter
from sim.engine import record_of, run
from sim.invariants.never_lost import lost_now
from sim.world.calls import Call
from statemachine.reasons import Reason
from statemachine.states import State
from tests.sim.spoiling import files, names, rewritten, running, spoilt, suspended

# ---- FreezesArePaired


def with_command(here, verb):
    """The record with one more command of runsc of the sandbox that there is."""
    record = record_of(here.world)
    create = next(call for call in record.calls if call.method == "run" and " create " in call.argument)
    more = f"{create.argument.partition(' create ')[0]} {verb} c0"
    number = record.calls[-1].number + 1
    return attrs.evolve(record, calls=(*record.calls, Call(number, 1, trio.current_time(), "processes", "run", more)))


@pytest.mark.parametrize(
    ("prepare", "verb", "message"),
    [
        (suspended, "pause", "it is paused, and was already"),
        (suspended, "checkpoint", "it is saved twice in one freeze"),
        (running, "checkpoint", "it is saved while it runs"),
        (running, "resume", "it is resumed, and was not paused"),
    ],
)
def test_a_command_that_comes_twice_or_out_of_order_is_found(prepare, verb, message):
    found = spoilt(prepare, lambda here: with_command(here, verb))
    assert names(found) == {"FreezesArePaired"}
    assert message in found[0].message


# ---- FailuresSayWhy, NobodyIsLost


async def failed(here):
    await running(here)
    await here.suspend()
    await here.resume()
    await trio.sleep(0.5)
    here.world.kill_sandbox("a1")
    await here.until(State.FAILED)
    await trio.sleep(0.5)


def without_a_reason(lines):
    for line in lines:
        line.get("base", {}).pop("problem", None)
        if line.get("event", {}).get("type") == "SandboxDied":
            line["event"]["problem"]["reason"] = str(Reason.INTERNAL)


def test_a_failure_that_is_a_fault_of_ours_is_found():
    assert "FailuresSayWhy" in names(spoilt(failed, lambda here: rewritten(here, without_a_reason)))


def without_its_snapshot(lines):
    """As if it had failed at once, from nothing."""
    problem = lines[-2]["event"]["problem"]
    lines[:] = [lines[0] | {"base": lines[0]["base"] | {"state": "Failed", "problem": problem}}]


def test_a_failure_that_does_not_name_the_snapshot_that_there_is_is_found():
    assert "NobodyIsLost" in names(spoilt(failed, lambda here: rewritten(here, without_its_snapshot)))


# ---- NeverLost


def test_who_has_neither_a_sandbox_nor_a_snapshot_is_lost():
    async def scenario(here):
        await running(here)
        assert lost_now(here.world, "a1", was_saved=False) is None
        here.world.kill_sandbox("a1")
        lost = lost_now(here.world, "a1", was_saved=False)
        assert lost == "is Running, and has neither a sandbox nor a snapshot that is whole"

    run(scenario)


@pytest.mark.parametrize("name", ["manifest.json", "pages.img"])
def test_who_was_saved_and_has_no_whole_snapshot_any_more_is_lost(name):
    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDED)
        assert lost_now(here.world, "a1", was_saved=True) is None
        (snapshot,) = here.world.disk.find_directory(files(here).snapshots).entries
        here.world.disk.remove(here.world.disk.find_directory(files(here).snapshot(snapshot)), name)
        assert "none is whole any more" in (lost_now(here.world, "a1", was_saved=True) or "")
        assert "has no snapshot that is whole" in (lost_now(here.world, "a1", was_saved=False) or "")

    run(scenario)


def test_of_who_was_never_heard_of_nothing_is_lost():
    async def scenario(here):
        assert lost_now(here.world, "nobody", was_saved=False) is None

    run(scenario)
