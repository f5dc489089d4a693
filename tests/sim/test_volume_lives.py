"""Durable volumes and hooks over whole lives of the real supervisor in the simulated world."""

import json
from contextlib import suppress
from typing import Any

import pytest
import trio

from actors.layout import StateDir
from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.faults import Fail, Fault, Hang, Slow, When
from sim.world import scenery
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State

VOLUMES: dict[str, Any] = {"durableVolumes": [{"name": "work"}]}
MOUNTED: dict[str, Any] = {"volumeMounts": [{"name": "work", "mountPath": "/data"}]}


def counting(*, generation=1, state="Running", **spec):
    """An actor that counts, with a volume."""
    return actor("a1", container(**MOUNTED), generation=generation, state=state, **VOLUMES, **spec)


def directory(here):
    return StateDir(here.world.state.root).actor("a1")


def write(here, text, name="work"):
    """What the application does."""
    path = directory(here).volume(name) / "file"
    disk = here.world.disk
    if path.name in disk.find_directory(path.parent).entries:
        disk.remove(disk.find_directory(path.parent), path.name)
    scenery.put_file(disk, path, text)


def read(here, name="work"):
    return here.world.read(directory(here).volume(name) / "file")


def leftovers(here):
    return [name for name in here.world.disk.find_directory(directory(here).root).entries if name.startswith(".")]


def manifest(here):
    snapshots = directory(here).snapshots
    (newest,) = [
        json.loads(data)
        for name, data in here.world.files_below(snapshots).items()
        if str(name).endswith("manifest.json") and data
    ][-1:]
    return newest


async def suspended(here):
    """An actor that was suspended with something in its volume."""
    await here.submit(counting())
    await here.wait(State.RUNNING)
    write(here, b"saved")
    await here.suspend()


async def resumed_and_failed(here):
    """It wrote something else, and died of itself."""
    await here.resume()
    write(here, b"newer")
    here.world.kill_sandbox("a1")
    await here.until(State.FAILED)


async def asked_in_vain(here):
    """Ask for a resume of which nobody will hear."""
    with suppress(ProblemError):
        await here.resume()


def played(scenario, **options):
    record = run(scenario, **options)
    assert [said for said in record.log if said.event == "fault" or said.level in {"error", "critical"}] == []
    return record


def test_a_full_snapshot_has_the_volumes_of_its_moment():
    async def life(here):
        await suspended(here)
        said = manifest(here)
        assert (said["scope"], said["volumes"]) == ("Full", ["work"])
        assert "volumes.tar" in {file["name"] for file in said["files"]}
        write(here, b"whatever came later")
        counted = len(here.output())
        await here.resume()
        assert read(here) == b"saved"
        await trio.sleep(1)
        assert leftovers(here) == []
        assert len(here.output()) > counted
        assert here.output() == [str(number) for number in range(len(here.output()))]

    played(life)


def test_nobody_waits_for_the_removal_of_what_a_start_has_replaced():
    fault = Fault(id="it", when=When(method="remove_tree", argument="volumes-removed", nth=3), what=Slow(600.0))

    async def life(here):
        await suspended(here)
        planted = here.plant(fault)
        await here.resume()
        assert read(here) == b"saved"
        assert leftovers(here) == [".volumes-removed"]
        await here.suspend()
        await here.resume()
        await trio.sleep(1200)
        assert leftovers(here) == []
        assert len(planted.fired) == 1

    played(life)


def test_a_death_is_told_while_what_a_start_has_replaced_is_still_being_removed():
    fault = Fault(id="it", when=When(method="remove_tree", argument="volumes-removed", nth=3), what=Hang(for_s=600.0))

    async def life(here):
        await suspended(here)
        here.plant(fault)
        await here.resume()
        assert leftovers(here) == [".volumes-removed"]
        here.world.kill_sandbox("a1")
        with trio.fail_after(60):
            await here.until(State.FAILED)
        await trio.sleep(1200)

    played(life)


def test_data_alone_is_saved_and_the_containers_start_anew():
    async def life(here):
        await here.submit(counting(suspend={"scope": "Data"}))
        await here.wait(State.RUNNING)
        await trio.sleep(1)
        write(here, b"saved")
        await here.suspend()
        said = manifest(here)
        assert said["scope"] == "Data"
        assert [file["name"] for file in said["files"]] == ["volumes.tar"]
        write(here, b"later")
        await here.resume()
        assert read(here) == b"saved"
        await trio.sleep(1)
        assert here.output().count("0") == 2, "it has begun anew"

    played(life)


def test_a_life_that_fails_leaves_its_volumes_and_a_resume_goes_back_to_the_snapshot():
    async def life(here):
        await suspended(here)
        await resumed_and_failed(here)
        assert read(here) == b"newer"
        await here.resume()
        assert read(here) == b"saved"

    played(life)


def test_a_resume_that_fails_leaves_the_volumes_as_they_were():
    async def life(here):
        await suspended(here)
        await resumed_and_failed(here)
        fault = Fault(id="it", when=When(method="run", argument=" restore "), what=Fail("ENOENT"))
        here.plant(fault)
        with pytest.raises(ProblemError):
            await here.resume()
        await here.until(State.SUSPENDED)
        assert read(here) == b"newer"
        assert leftovers(here) == []

    played(life)


def test_a_cold_start_keeps_the_volumes():
    async def life(here):
        await here.submit(counting())
        await here.wait(State.RUNNING)
        write(here, b"kept")
        here.world.kill_sandbox("a1")
        await here.until(State.FAILED)
        await here.resume()
        assert read(here) == b"kept"
        await here.stop()
        assert read(here) == b"kept"

    played(life)


def test_a_worker_that_is_killed_while_volumes_are_put_back_leaves_a_whole_state():
    async def life(here):
        await suspended(here)
        write(here, b"newer")
        here.world.beside(asked_in_vain, here)
        with trio.fail_after(60):
            while read(here) == b"newer":
                await trio.sleep(0.001)
        assert leftovers(here) != []
        await here.restart()
        await here.wait(State.SUSPENDED)
        assert read(here) == b"newer"
        assert leftovers(here) == []
        await here.resume()
        assert read(here) == b"saved"

    played(life)


def test_a_full_disk_refuses_the_suspend_and_the_actor_runs_on():
    async def life(here):
        await here.submit(counting())
        await here.wait(State.RUNNING)
        fault = Fault(id="it", when=When(method="write_archive"), what=Fail("ENOSPC"))
        here.plant(fault)
        with pytest.raises(ProblemError) as caught:
            await here.suspend()
        assert caught.value.problem.reason is Reason.INSUFFICIENT_DISK
        await here.until(State.RUNNING)
        await here.suspend()

    run(life)


def hooked(generation=1, **lifecycle):
    return actor("a1", container(command=IDLE), generation=generation, lifecycle=lifecycle)


def test_a_hook_that_fails_refuses_the_suspend_until_a_higher_generation_has_another():
    async def life(here):
        await here.submit(hooked(preSuspend={"exec": ["false"]}))
        await here.wait(State.RUNNING)
        with pytest.raises(ProblemError) as caught:
            await here.suspend()
        assert caught.value.problem.reason is Reason.HOOK_FAILED
        await here.until(State.RUNNING)
        await here.submit(hooked(generation=2, preSuspend={"exec": ["true"]}))
        await here.suspend()

    run(life)


def test_a_hook_that_fails_after_a_restore_leaves_the_snapshot_good():
    async def life(here):
        await here.submit(hooked(postResume={"exec": ["false"]}))
        await here.wait(State.RUNNING)
        await here.suspend()
        with pytest.raises(ProblemError) as caught:
            await here.resume()
        assert caught.value.problem.reason is Reason.HOOK_FAILED
        await here.until(State.SUSPENDED)
        await here.submit(hooked(generation=2, postResume={"exec": ["true"]}))
        await here.wait(State.RUNNING)

    run(life)
