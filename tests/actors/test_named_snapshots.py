"""The snapshot that a document names, as it is found at admission and recalled after a restart."""

import attrs
import pytest

from actors.assignment import SnapshotAt
from actors.manifest import CHECKPOINT_FILES, write_manifest
from actors.named_snapshots import find_named, recall_named
from actors.stores import snapshot_uri, upload
from statemachine.actor import Snapshot
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from supervisor import recovering
from supervisor.memory import first_memory
from tests.actors.assignments import BASE, admitted, document
from tests.actors.test_snapshots import a_manifest
from tests.fakes.ports import FakePorts

pytestmark = pytest.mark.anyio

ID = "s00000000000000aa"
DIRECTORY = BASE / "elsewhere"
STORES = ["s3://bucket/x", "file:///mnt/store"]


@pytest.fixture
async def ports():
    ports = FakePorts()
    for name in CHECKPOINT_FILES:
        ports.files.put(DIRECTORY / name, b"page")
    digest = await ports.files.digest(DIRECTORY / "pages.img")
    await write_manifest(ports.files, DIRECTORY, a_manifest(ID, digest=digest))
    return ports


@pytest.mark.parametrize("find", [find_named, recall_named])
async def test_a_directory_is_a_snapshot_that_is_here(ports, find):
    found = await find(ports.files, ports.stores, DIRECTORY.as_uri(), step=Step.ADMISSION)
    assert (found.id, found.uri, found.is_elsewhere) == (ID, DIRECTORY.as_uri(), False)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("find", [find_named, recall_named])
async def test_one_in_a_store_is_elsewhere_also_when_its_store_is_a_directory(ports, find, store):
    uri = snapshot_uri(store, "a1", ID)
    await upload(ports.files, ports.stores, DIRECTORY, uri)
    found = await find(ports.files, ports.stores, uri, step=Step.ADMISSION)
    assert (found.id, found.uri, found.stored_uri) == (ID, uri, uri)


@pytest.mark.parametrize("store", STORES)
async def test_its_manifest_is_read_once_and_its_chunks_are_looked_at(ports, store):
    uri = snapshot_uri(store, "a1", ID)
    await upload(ports.files, ports.stores, DIRECTORY, uri)
    del ports.stores.done[:]
    await find_named(ports.files, ports.stores, uri, step=Step.ADMISSION)
    actor_uri = uri.rpartition("/")[0]
    assert ports.stores.done == [("get", f"{uri}/manifest.json"), ("list", f"{actor_uri}/chunks")]
    for chunk in [each for each in ports.stores.content if "/chunks/" in each]:
        del ports.stores.content[chunk]
    with pytest.raises(ProblemError, match="SnapshotCorrupt"):
        await find_named(ports.files, ports.stores, uri, step=Step.ADMISSION)


async def test_what_is_not_there_is_refused_at_admission_and_recalled_by_its_name(ports):
    uri = snapshot_uri("s3://bucket/x", "a1", ID)
    with pytest.raises(ProblemError) as caught:
        await find_named(ports.files, ports.stores, uri, step=Step.ADMISSION)
    assert caught.value.problem.reason is Reason.SNAPSHOT_MISSING
    before = list(ports.stores.done)
    recalled = await recall_named(ports.files, ports.stores, uri, step=Step.RECOVER)
    assert recalled == Snapshot(id=ID, uri=uri, created_at=0.0, stored_uri=uri)
    assert ports.stores.done == before  # a store that does not answer would keep every actor waiting
    assert (
        await recall_named(ports.files, ports.stores, "file:///nowhere", step=Step.RECOVER)
    ).uri == "file:///nowhere"


async def test_what_an_actor_still_knows_of_the_one_that_its_document_names_is_taken(ports):
    uri = snapshot_uri("s3://bucket/x", "a1", ID)
    assignment = admitted(document(spec__snapshot={"uri": uri}))
    assert assignment.snapshot == SnapshotAt(uri)
    known = Snapshot(id=ID, uri=uri, created_at=9.0, exited=(("one", 0),), stored_uri=uri)
    actor = first_memory(assignment, known)
    assert await recovering._named(ports, assignment, actor) == known
    other = attrs.evolve(actor, origin=None, last_good=None)
    recalled = await recovering._named(ports, assignment, other)
    assert recalled is not None
    assert recalled.exited == ()
