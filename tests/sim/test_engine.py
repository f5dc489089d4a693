"""The engine: the real supervisor in virtual time, the same run for the same seed, and nothing real within reach."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
import uuid

import orjson
import pytest
import structlog
import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from sim.documents import counter
from sim.engine import HungError, run, run_in_virtual_time
from sim.faults import Fail, Fault, When
from sim.guard import RealWorldError, guarded
from sim.scenario import stage
from sim.world.calls import RunawayError
from sim.world.world import Machine, World
from statemachine.states import State
from tests.needs import ROOT


async def a_whole_life(here):
    await here.submit(counter())
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.resume()
    await here.stop()


async def two_lives_at_once(here):
    async with trio.open_nursery() as nursery:
        for uid in ("a1", "a2"):
            nursery.start_soon(here.submit, counter(uid))
    for uid in ("a1", "a2"):
        await here.reach(State.SUSPENDED, uid)


CHILD = """
from sim.engine import run
from tests.sim.test_engine import two_lives_at_once
print(run(two_lives_at_once, seed=7).digest())
"""


def test_the_same_seed_is_the_same_run_in_every_process_and_under_every_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-c", CHILD],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.strip()
        for hash_seed in ("0", "1", "4711")
    }
    assert digests == {run(two_lives_at_once, seed=7).digest()}


def test_another_seed_is_another_run():
    assert len({run(two_lives_at_once, seed=seed).digest() for seed in range(3)}) == 3


def test_a_run_leaves_nothing_that_changes_the_next():
    first = run(a_whole_life, seed=3)
    run(two_lives_at_once, seed=99)
    assert run(a_whole_life, seed=3) == first


def test_a_record_tells_calls_transitions_faults_log_and_files():
    fault = Fault(id="never", when=When(method="no_such"), what=Fail("EIO"))
    record = run(a_whole_life, seed=1, faults=[fault])
    document = orjson.loads(record.as_json())
    assert set(document) == {"v", "seed", "virtual_s", "calls", "moves", "faults", "log", "files"}
    assert [call["number"] for call in document["calls"]] == list(range(1, len(record.calls) + 1))
    assert {call.port for call in record.calls} == {"cgroups", "files", "net", "processes", "signals", "wall", "watch"}
    (report,) = document["faults"]
    assert report == {
        "fault": {"id": "never", "when": {"method": "no_such"}, "what": {"error": "EIO", "type": "Fail"}},
        "seen": 0,
        "fired": [],
    }
    assert "actors/a1/journal.jsonl" in document["files"]
    assert "ready" in {said.event for said in record.log}


def test_the_times_of_a_record_are_virtual():
    async def a_long_wait(here):
        await trio.sleep(36 * 3600)

    began_s = time.monotonic()
    record = run(a_long_wait, limit_s=48 * 3600)
    assert record.virtual_s >= 36 * 3600
    assert time.monotonic() - began_s < 60
    assert all(said.at_s <= record.virtual_s for said in record.log)


def test_trio_still_has_the_hook_that_seeds_its_scheduling():
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING  # hypothesis, where it is loaded, has set it already
    assert isinstance(before, bool)
    assert isinstance(trio_run._r, random.Random)

    def order(seed):
        came = []

        async def come(name):
            await trio.lowlevel.checkpoint()
            came.append(name)

        async def main():
            async with trio.open_nursery() as nursery:
                for name in range(12):
                    nursery.start_soon(come, name)

        run_in_virtual_time(main, seed=seed)
        return came

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert trio_run._ALLOW_DETERMINISTIC_SCHEDULING is before


REAL = {
    "a thread": lambda: threading.Thread(target=print).start(),
    "a socket": lambda: socket.socket().close(),
    "a process": lambda: subprocess.run(["true"], check=False),
    "a file to write": lambda: open("/dev/null", "w"),  # noqa: PTH123, SIM115 - it is not opened
    "a file to read": lambda: open("/etc/hostname"),  # noqa: PTH123, SIM115 - it is not opened
    "the date": lambda: int(time.time()),
    "the clock": lambda: int(time.monotonic()),
    "a nap": lambda: time.sleep(0),
    "unseeded randomness": lambda: int(random.random()),
    "an id out of nowhere": lambda: str(uuid.uuid4()),
}


@pytest.mark.parametrize("reach", REAL.values(), ids=REAL.keys())
def test_the_real_world_is_out_of_reach_in_a_run(reach):
    async def curious(here):
        reach()

    with pytest.raises(RealWorldError):
        run(curious)


def test_who_catches_the_error_does_not_hide_what_was_reached_for():
    async def sly(here):
        with contextlib.suppress(Exception):
            time.time()

    with pytest.raises(RealWorldError):
        run(sly)


def test_a_thread_that_the_loop_would_start_or_has_kept_from_before_is_an_error_too():
    async def curious(here=None):
        await trio.to_thread.run_sync(int)

    trio.run(curious)
    with pytest.raises(RealWorldError):
        run(curious)


def test_everything_is_as_before_after_a_run():
    before = time.time, time.monotonic, random.random, uuid.uuid4, structlog.get_config(), sys.dont_write_bytecode
    run(a_whole_life)
    after = time.time, time.monotonic, random.random, uuid.uuid4, structlog.get_config(), sys.dont_write_bytecode
    assert after == before
    threading.Thread(target=int).start()
    with guarded(), guarded():
        pass
    socket.socket().close()


def test_what_a_scenario_raises_comes_out_as_it_was_and_with_its_seed():
    async def wrong(here):
        assert here.state() == "Running", "it is not"

    with pytest.raises(AssertionError, match="it is not") as caught:
        run(wrong, seed=12)
    assert caught.value.__notes__ == ["seed 12, faults []"]


def test_a_scenario_that_waits_for_ever_is_ended():
    async def patient(here):
        await trio.sleep_forever()

    with pytest.raises(HungError):
        run(patient, limit_s=100)


def test_a_run_that_goes_round_in_circles_is_ended():
    async def again(here):
        while True:
            await here.ask("status")

    with pytest.raises(RunawayError):
        run(again, machine=Machine(calls_max=200))


@pytest.mark.trio
async def test_a_stage_stands_on_any_clock_that_jumps(autojump_clock: MockClock):
    async with stage(World(seed=1)) as here:
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        assert here.state() == State.SUSPENDING
