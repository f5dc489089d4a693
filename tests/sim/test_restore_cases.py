"""Restores in the simulated world: what the verdict refuses, what is forced, and several lives from one snapshot."""

import json
from typing import Any

import pytest
import trio
from blake3 import blake3

from sim.documents import COUNT, actor, container, counter
from sim.engine import run
from sim.world import scenery
from sim.world.runsc.settings import Flavour
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.states import State

ONE = container(command=COUNT)
FLAVOURS = pytest.mark.parametrize("flavour", Flavour)
SLOWER = (*COUNT[:-1], COUNT[-1].replace("0.1", "0.2"))


async def suspended(here, document=None):
    """The snapshot of an actor that was run and suspended."""
    await here.submit(document or actor("a1", ONE))
    await here.wait(State.RUNNING)
    await trio.sleep(1)
    return (await here.suspend())["lastGoodSnapshot"]


async def refused(here, uid="a1", **arguments):
    """Resume what must not be resumed; returns its status, back at rest, with nothing made and nothing lost."""
    good = (await here.status(uid))["lastGoodSnapshot"]
    await here.ask("resume", uid=uid, **arguments)
    await here.wait(State.SUSPENDED, uid)
    status = await here.status(uid)
    assert (status["state"], status["lastGoodSnapshot"]) == ("Suspended", good)
    assert here.left() == []
    return status


def rewrite(here, snapshot, change, uid="a1"):
    """Change a snapshot's manifest as if it had been taken elsewhere."""
    path = here.world.state.actor(uid).snapshot(snapshot["id"]) / "manifest.json"
    document = json.loads(here.world.read(path))
    change(document)
    scenery.put_file(here.world.disk, path, json.dumps(document).encode())


def runsc_of(document, **changes):
    document["runsc"] |= changes


CASE_033: dict[str, Any] = {
    "another runsc": (lambda it: runsc_of(it, version="release-20260622.0"), "SnapshotIncompatible", "runsc"),
    "another machine": (lambda it: it.update(arch="aarch64"), "SnapshotIncompatible", "arch"),
    "a processor that could more": (
        lambda it: it["cpuFeatures"].append("avx512f"),
        "SnapshotIncompatible",
        "CPU feature avx512f",
    ),
    "another platform": (lambda it: runsc_of(it, platform="kvm"), "SnapshotIncompatible", "platform"),
    "a GPU here none": (
        lambda it: it["containers"][0]["gpus"].append(
            {"ordinal": 0, "uuid": "GPU-a", "model": "H100", "minor": 0, "pciBusId": "0000:01:00.0"}
        ),
        "SnapshotIncompatible",
        "main: GPUs",
    ),
    "another container": (lambda it: it["containers"][0].update(name="side"), "SnapshotIncompatible", "containers"),
    "other arguments": (
        lambda it: it["containers"][0]["shape"]["args"].append("--more"),
        "BundleChanged",
        "main: argument 3",
    ),
    "no pages": (
        lambda it: it.update(files=[each for each in it["files"] if each["name"] != "pages.img"]),
        "SnapshotCorrupt",
        None,
    ),
    "no files at all": (lambda it: it.update(files=[]), "SnapshotCorrupt", None),
    "another size": (lambda it: it["files"][0].update(size=7), "SnapshotCorrupt", None),
    "another digest": (
        lambda it: it["files"][0].update(blake3=blake3(b"other").hexdigest()),
        "SnapshotCorrupt",
        None,
    ),
    "a format to come": (lambda it: it.update(v=2), "NewerFormat", None),
}


@pytest.mark.parametrize("name", CASE_033)
def test_case_033_a_snapshot_of_another_place_is_refused_before_runsc_is_called_and_stays(name):
    change, reason, subject = CASE_033[name]
    called = []

    async def scenario(here):
        snapshot = await suspended(here)
        rewrite(here, snapshot, change)
        before = len(here.world.ledger.calls)
        error = (await refused(here))["error"]
        called.extend(here.world.ledger.calls[before:])
        assert (error["step"], error["reason"]) == ("restore", reason)
        assert subject in {None, error["subject"]}
        assert error["detail"] == ""

    run(scenario)
    assert not [call for call in called if call.port == "processes"]


def test_case_033_an_old_manifest_that_says_less_is_tried():
    async def scenario(here):
        snapshot = await suspended(here)
        rewrite(here, snapshot, lambda document: document.pop("cpuFeatures"))
        assert (await here.resume())["state"] == "Running"

    run(scenario)


@FLAVOURS
def test_new_arguments_on_a_kept_snapshot_do_not_silently_run_the_old_ones(flavour):
    async def scenario(here):
        snapshot = await suspended(here)
        await here.stop()
        await here.submit(actor("a1", container(command=SLOWER), generation=2))
        await here.until(State.SUSPENDED)
        status = await here.status()
        assert (status["error"]["reason"], status["error"]["subject"]) == ("BundleChanged", "main: argument 2")
        assert "sleep 0.2" in status["error"]["message"]
        assert (status["lastGoodSnapshot"], status["forced"]) == (snapshot, False)
        assert here.left() == []
        # Whoever wants them starts cold.
        fresh = actor("a1", container(command=SLOWER), generation=3, snapshot={"from": "None"})
        await here.submit(fresh)
        assert (await here.wait(State.RUNNING))["error"] is None
        await here.stop()

    run(scenario, machine=Machine(flavour=flavour))


@FLAVOURS
@pytest.mark.parametrize("is_taken_over", [False, True])
def test_whoever_insists_gets_the_old_ones_and_journal_and_status_say_so(flavour, is_taken_over):
    async def scenario(here):
        await suspended(here)
        await here.stop()
        await here.submit(actor("a1", container(command=SLOWER), generation=2))
        await here.until(State.SUSPENDED)
        count = len(here.output())
        await here.ask("resume", uid="a1", onDifference="Force")
        status = await here.wait(State.RUNNING)
        assert (status["forced"], status["error"]) == (True, None)
        await trio.sleep(1)
        assert here.output() == [str(number) for number in range(len(here.output()))]
        assert len(here.output()) > count
        lines = here.journal()
        assert [line["progress"]["mark"] for line in lines if line.get("progress", {}).get("step") == "restore"][
            -1:
        ] == ["Forced main: argument 2"]
        assert [line["event"]["onDifference"] for line in lines if line.get("event", {}).get("type") == "Activate"][
            -1:
        ] == ["Force"]
        # What runs is still what was saved, for a later life of the worker too: without the word it is refused again.
        if is_taken_over:
            await here.restart()
        await here.suspend()
        error = (await refused(here))["error"]
        assert (error["reason"], error["subject"]) == ("BundleChanged", "main: argument 2")
        assert (await here.status())["forced"] is False

    run(scenario, machine=Machine(flavour=flavour))


@pytest.mark.parametrize(
    "name", ["another machine", "a GPU here none", "another container", "no pages", "another digest"]
)
def test_what_could_only_fail_is_not_forced(name):
    change, reason, _ = CASE_033[name]

    async def scenario(here):
        snapshot = await suspended(here)
        rewrite(here, snapshot, change)
        status = await refused(here, onDifference="Force")
        assert (status["error"]["reason"], status["forced"]) == (reason, True)

    run(scenario)


def test_no_word_but_the_two_says_what_becomes_of_a_difference():
    async def scenario(here):
        await suspended(here)
        with pytest.raises(ProblemError, match="onDifference is one of Refuse, Force"):
            await here.ask("resume", uid="a1", onDifference="Maybe")

    run(scenario)


@FLAVOURS
def test_two_actors_and_a_second_life_come_from_one_snapshot(flavour):
    async def scenario(here):
        snapshot = await suspended(here)
        told = [int(line) for line in here.output()]
        for uid in ("a2", "a3"):
            await here.submit(counter(uid, snapshot={"uri": snapshot["uri"]}))
        for uid in ("a2", "a3"):
            await here.wait(State.RUNNING, uid)
        await here.resume()
        await trio.sleep(1)
        for uid in ("a2", "a3"):
            assert int(here.output(uid)[0]) == told[-1] + 1
        here.world.kill_sandbox("a1")
        await here.until(State.FAILED)
        await here.resume()
        for uid in ("a1", "a2", "a3"):
            assert (await here.stop(uid))["state"] == "Terminated"
        assert here.left() == []

    run(scenario, machine=Machine(flavour=flavour))


def test_a_snapshot_that_another_actor_goes_back_to_outlives_its_owners_newer_ones():
    async def scenario(here):
        snapshot = await suspended(here)
        await here.submit(counter("a2", state="Suspended", snapshot={"uri": snapshot["uri"]}))
        await here.until(State.SUSPENDED, "a2")
        for _ in range(3):
            await here.resume()
            await here.suspend()
        home = here.world.state.actor("a1").snapshots
        names = {name.split("/")[0] for name in here.world.files_below(home)}
        assert snapshot["id"] in names
        assert len(names) == 3
        await here.resume("a2")
        await here.stop("a2")
        # Nobody needs it any more.
        await here.resume()
        await here.suspend()
        names = {name.split("/")[0] for name in here.world.files_below(home)}
        assert snapshot["id"] not in names
        assert len(names) == 2

    run(scenario)


def test_an_origin_that_is_gone_all_the_same_is_named_and_its_actor_stays():
    async def scenario(here):
        snapshot = await suspended(here)
        await here.submit(counter("a2", state="Suspended", snapshot={"uri": snapshot["uri"]}))
        await here.until(State.SUSPENDED, "a2")
        directory = here.world.disk.find_directory(here.world.state.actor("a1").snapshot(snapshot["id"]))
        here.world.disk.remove(directory, "manifest.json")
        assert (await refused(here, "a2"))["error"]["reason"] == "SnapshotMissing"

    run(scenario)
