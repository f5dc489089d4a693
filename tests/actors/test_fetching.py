"""Fetching the snapshot that an activation comes from: once, whole or not at all, never to a place that it names."""

import anyio
import attrs
import pytest

from actors.manifest import CHECKPOINT_FILES, MANIFEST_NAME, write_manifest
from actors.snapshots import directory_of, uri_of
from actors.steps.fetching import drop_damaged_copy, fetched
from actors.stores import snapshot_uri, upload
from statemachine.actor import Snapshot
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.assignments import BASE
from tests.actors.test_snapshots import a_manifest
from tests.fakes.performer import a_problem
from tests.fakes.ports import FakePorts
from tests.supervisor.stands import STATE

pytestmark = pytest.mark.anyio

ID = "s00000000000000aa"
URI = snapshot_uri("s3://bucket/x", "a1", ID)
THERE = Snapshot(id=ID, uri=URI, created_at=1.0, stored_uri=URI)
HERE = STATE.actor("a1").snapshot(ID)


class FakeStage:
    """What fetching needs of a stage."""

    def __init__(self):
        self.ports = FakePorts()
        self.files, self.stores = self.ports.files, self.ports.stores
        self.directory = STATE.actor("a1")
        self.marks = []

    async def mark(self, _step, mark):
        self.marks.append(mark)

    @property
    def left(self):
        return sorted(path.name for path in self.files.content if HERE in path.parents)


@pytest.fixture
async def stage():
    stage, directory = FakeStage(), BASE / "elsewhere"
    for name in CHECKPOINT_FILES:
        stage.files.put(directory / name, b"page")
    digest = await stage.files.digest(directory / "pages.img")
    await write_manifest(stage.files, directory, a_manifest(ID, digest=digest))
    await upload(stage.files, stage.stores, directory, URI)
    return stage


async def refused(stage, snapshot=THERE):
    with pytest.raises(ProblemError) as caught:
        await fetched(stage, snapshot)
    return caught.value.problem.reason


async def test_a_snapshot_that_is_here_is_not_looked_for_anywhere(stage):
    local = attrs.evolve(THERE, uri=uri_of(HERE))
    before = list(stage.stores.done)
    assert await fetched(stage, local) == local.uri
    assert stage.stores.done == before
    assert stage.marks == []


async def test_one_that_is_only_in_its_store_becomes_an_ordinary_snapshot_here_and_is_fetched_once(stage):
    uri = await fetched(stage, THERE)
    assert directory_of(uri) == HERE
    assert stage.left == sorted([*CHECKPOINT_FILES, MANIFEST_NAME])
    assert stage.marks == ["Fetching", "Fetched"]
    before = list(stage.stores.done)
    assert await fetched(stage, THERE) == uri
    assert stage.stores.done == before


@pytest.mark.parametrize(("operation", "reason"), [("get", "StoreUnreachable"), ("get_into", "StoreUnreachable")])
async def test_what_cannot_be_fetched_says_why_and_leaves_nothing(stage, operation, reason):
    stage.stores.failures[operation] = "down"
    assert await refused(stage) == reason
    assert stage.left == []
    del stage.stores.failures[operation]
    await fetched(stage, THERE)


async def test_who_is_cancelled_in_the_middle_leaves_nothing(stage, monkeypatch):
    reached = anyio.Event()

    async def get_into(*_values, **_named):
        reached.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(type(stage.stores.open(URI)), "get_into", get_into)
    async with anyio.create_task_group() as group:
        group.start_soon(fetched, stage, THERE)
        await reached.wait()
        assert stage.left
        group.cancel_scope.cancel()
    assert stage.left == []


@pytest.mark.parametrize("name", ["..", "", "x", "s1", "s00000000000000aa/.."])
async def test_a_snapshot_that_is_called_as_none_is_written_nowhere(stage, name):
    before = dict(stage.files.content)
    assert await refused(stage, attrs.evolve(THERE, id=name)) is Reason.SNAPSHOT_CORRUPT
    assert stage.files.content == before


async def test_a_damaged_copy_goes_so_that_it_is_fetched_again(stage):
    await fetched(stage, THERE)
    await drop_damaged_copy(stage, THERE, a_problem(Reason.SNAPSHOT_INCOMPATIBLE))
    assert stage.left
    await drop_damaged_copy(stage, attrs.evolve(THERE, uri=uri_of(HERE)), a_problem(Reason.SNAPSHOT_CORRUPT))
    assert stage.left
    await drop_damaged_copy(stage, THERE, a_problem(Reason.SNAPSHOT_CORRUPT))
    assert stage.left == []
