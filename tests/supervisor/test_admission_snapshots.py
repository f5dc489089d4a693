"""From which snapshot a document lets its actor run."""

from pathlib import Path

import pytest

from actors.manifest import CHECKPOINT_FILES, write_manifest
from actors.stores import snapshot_uri, upload
from statemachine import commands as c
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.admitting import Effect
from tests.actors.test_snapshots import a_manifest
from tests.fakes.performer import a_snapshot
from tests.supervisor.stands import STATE, a_stand

pytestmark = pytest.mark.anyio

SNAPSHOT = a_snapshot(7)


async def put_snapshot(stand, directory=None, uid="a1"):
    """A whole snapshot of an actor; returns its URI."""
    directory = directory or STATE.actor(uid).snapshot(SNAPSHOT.id)
    for name in CHECKPOINT_FILES:
        stand.files.put(directory / name, b"page")
    digest = await stand.files.digest(directory / "pages.img")
    await write_manifest(stand.files, directory, a_manifest(SNAPSHOT.id, digest=digest))
    return directory.as_uri()


async def test_running_on_an_actor_with_a_good_snapshot_resumes_it():
    async with a_stand() as stand:
        await put_snapshot(stand)
        life = await stand.running()
        assert life.actor.origin.id == SNAPSHOT.id
        assert "RestoreSandbox" in stand.story()


async def test_a_cold_start_is_one_only_when_it_is_asked_for():
    async with a_stand() as stand:
        await put_snapshot(stand)
        life = await stand.running(spec__snapshot={"from": "None"})
        assert life.actor.origin is None
        assert "RestoreSandbox" not in stand.story()


async def test_a_named_snapshot_wins_over_the_one_that_is_here():
    async with a_stand() as stand:
        uri = await put_snapshot(stand, Path("/elsewhere/one"))
        await stand.running()
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        assert stand.life().actor.last_good.uri != uri
        await stand.submit(generation=2, spec__snapshot={"uri": uri})
        await stand.until(State.RUNNING)
        assert stand.life().actor.origin.uri == uri


@pytest.mark.parametrize("desired", ["Running", "Suspended"])
async def test_a_named_snapshot_that_is_not_there_refuses_the_document(desired):
    async with a_stand() as stand:
        reasons = await stand.refused(spec__desiredState=desired, spec__snapshot={"uri": "file:///nowhere"})
        assert reasons == [Reason.SNAPSHOT_MISSING]
        assert stand.worker.find("a1") is None


@pytest.mark.parametrize("uri", ["file:///a%00b", "file://[x/y"])
async def test_a_uri_that_no_file_system_can_hold_is_refused_with_a_reason(uri):
    async with a_stand() as stand:
        (reason,) = await stand.refused(spec__snapshot={"uri": uri})
        assert reason in {Reason.SNAPSHOT_MISSING, Reason.INVALID_VALUE}


async def test_suspended_first_needs_a_snapshot():
    async with a_stand() as stand:
        assert await stand.refused(spec__desiredState="Suspended") == [Reason.NOTHING_TO_SUSPEND]
        uri = await put_snapshot(stand, Path("/elsewhere/one"))
        assert await stand.submit(spec__desiredState="Suspended", spec__snapshot={"uri": uri}) is Effect.BEGUN
        await stand.until(State.SUSPENDED)
        assert stand.life().actor.last_good.uri == uri
        assert "CreateSandbox" not in stand.story()


async def test_suspended_before_running_is_kept_and_acted_on_at_running():
    async with a_stand() as stand:
        holds = []
        stand.prepare["a1"] = lambda performer: holds.append(performer.hold(c.CreateSandbox))
        await stand.submit()
        await holds[0].begun.wait()
        assert await stand.submit(generation=2, spec__desiredState="Suspended") is Effect.UPDATED
        assert stand.life().actor.state is State.CREATING
        holds[0].let_go()
        await stand.until(State.SUSPENDED)


async def test_a_successor_that_is_to_begin_suspended_without_a_snapshot_does_not_begin_cold():
    async with a_stand() as stand:
        await stand.running()
        hold = stand.performers["a1"].hold(c.StopContainers)
        await stand.submit(generation=2, spec__desiredState="Terminated")
        await hold.begun.wait()
        await stand.submit(generation=3, spec__desiredState="Suspended")
        hold.let_go()
        await stand.life().ended.wait()
        assert stand.life().actor.problem.reason is Reason.NOTHING_TO_SUSPEND
        assert "CreateSandbox" not in stand.performers["a1"].story[8:]


async def test_a_successor_that_is_to_begin_suspended_has_the_snapshot_that_its_document_names():
    async with a_stand() as stand:
        uri = await put_snapshot(stand, Path("/elsewhere/one"))
        await stand.running()
        hold = stand.performers["a1"].hold(c.StopContainers)
        await stand.submit(generation=2, spec__desiredState="Terminated")
        await hold.begun.wait()
        await stand.submit(generation=3, spec__desiredState="Suspended", spec__snapshot={"uri": uri})
        hold.let_go()
        await stand.until(State.SUSPENDED)
        assert stand.life().actor.last_good.uri == uri


# ---- in a store

STORED = "s3://bucket/of/snapshots"


async def put_stored(stand, uid="a1"):
    """A snapshot in a store, and nothing of it here; returns its URI."""
    directory = Path("/elsewhere/one")
    await put_snapshot(stand, directory)
    uri = snapshot_uri(STORED, uid, SNAPSHOT.id)
    await upload(stand.files, stand.ports.stores, directory, uri)
    await stand.files.remove_tree(directory)
    return uri


@pytest.mark.parametrize("desired", ["Running", "Suspended"])
async def test_a_snapshot_in_a_store_is_verified_there_and_is_where_the_actor_begins(desired):
    async with a_stand() as stand:
        uri = await put_stored(stand)
        await stand.submit(spec__desiredState=desired, spec__snapshot={"uri": uri})
        await stand.until(State[desired.upper()])
        origin = stand.life().actor.origin
        assert (origin.id, origin.uri, origin.stored_uri) == (SNAPSHOT.id, uri, uri)
        assert origin.is_elsewhere
        assert "get_into" not in {operation for operation, _ in stand.ports.stores.done}


async def test_a_snapshot_that_is_not_whole_in_its_store_is_refused():
    async with a_stand() as stand:
        uri = await put_stored(stand)
        content = stand.ports.stores.content
        chunk = next(each for each in content if "/chunks/" in each)
        content[chunk] = content[chunk][:-1]
        assert set(await stand.refused(spec__snapshot={"uri": uri})) == {Reason.SNAPSHOT_CORRUPT}
        del content[f"{uri}/manifest.json"]
        assert await stand.refused(spec__snapshot={"uri": uri}) == [Reason.SNAPSHOT_MISSING]
        assert stand.worker.find("a1") is None


async def test_a_store_that_does_not_answer_refuses_the_document():
    async with a_stand() as stand:
        uri = await put_stored(stand)
        stand.ports.stores.failures["get"] = "down"
        assert await stand.refused(spec__snapshot={"uri": uri}) == [Reason.STORE_UNREACHABLE]
        del stand.ports.stores.failures["get"]
        assert await stand.submit(spec__snapshot={"uri": uri}) is Effect.BEGUN
