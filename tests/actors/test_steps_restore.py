"""Assign, restore, and what performs the steps."""

import errno
import json
from typing import Any

import anyio
import attrs
import pytest

from actors.snapshots import uri_of
from actors.steps.assign import read_assignment, write_assignment
from actors.steps.performer import Steps
from actors.steps.restore import restore_sandbox
from statemachine import commands as c
from statemachine import events as e
from statemachine.reasons import Reason
from tests.actors.step_stage import an_actor, reason_of, saved, shaped
from tests.fakes.performer import a_snapshot

pytestmark = pytest.mark.anyio


async def test_an_assignment_comes_back_as_it_was_written():
    stage, _, _ = shaped("one", wakeupProbe={"exec": ["/bin/ok"]})
    await write_assignment(stage.ports.files, stage.directory, stage.assignment)
    assert await read_assignment(stage.ports.files, stage.directory.assignment) == stage.assignment


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (2, Reason.NEWER_FORMAT),
        (0, Reason.STATE_CORRUPT),
        ("1", Reason.STATE_CORRUPT),
        (True, Reason.STATE_CORRUPT),
        (1.0, Reason.STATE_CORRUPT),
    ],
)
async def test_an_assignment_of_another_format_is_not_taken_for_ours(version, reason):
    stage, _, _ = shaped()
    path = stage.directory.assignment
    await write_assignment(stage.ports.files, stage.directory, stage.assignment)
    document = json.loads(stage.ports.files.content[path])
    stage.ports.files.put(path, json.dumps({**document, "v": version}).encode())
    assert await reason_of(read_assignment(stage.ports.files, path)) is reason


async def test_an_assignment_that_cannot_be_written_is_a_problem_of_assign():
    stage, _, _ = shaped()
    stage.ports.files.fail("replace", "assignment.json", errno.EROFS)
    assert await reason_of(Steps(stage).adopt(stage.assignment)) is Reason.STATE_UNWRITABLE


async def test_an_adoption_that_cannot_be_written_leaves_the_old_assignment():
    stage, _, _ = shaped()
    old = stage.assignment
    stage.ports.files.fail("replace", "assignment.json", errno.EROFS)
    await reason_of(Steps(stage).adopt(attrs.evolve(old, generation=9)))
    assert stage.assignment is old


async def test_an_adoption_is_not_overwritten_by_the_step_that_records_the_generation_before():
    stage, _, _ = shaped()
    files, new = stage.ports.files, attrs.evolve(stage.assignment, generation=9)
    looked, may_go_on, read = anyio.Event(), anyio.Event(), files.read

    async def read_slowly(path, *, limit_bytes):
        files.read = read
        looked.set()
        await may_go_on.wait()
        return await read(path, limit_bytes=limit_bytes)

    files.read = read_slowly
    async with anyio.create_task_group() as group:
        group.start_soon(Steps(stage).perform, c.RecordAssignment(), an_actor())
        await looked.wait()
        group.start_soon(Steps(stage).adopt, new)
        await anyio.wait_all_tasks_blocked()
        may_go_on.set()
    assert await read_assignment(files, stage.directory.assignment) == new


@pytest.mark.parametrize("uri", ["file:///nowhere", "file:///a%00b", "s3://bucket/x"])
async def test_a_restore_that_is_refused_has_touched_nothing(uri):
    stage, _, _ = shaped()
    stage.activation = stage.sandbox = None
    before = dict(stage.ports.files.content)
    refused = await restore_sandbox(stage, c.RestoreSandbox(snapshot=attrs.evolve(a_snapshot(), uri=uri)))
    assert isinstance(refused, e.RestoreRefused)
    assert (stage.activation, stage.ports.files.content) == (None, before)


@pytest.mark.parametrize("damage", ["missing", "other", "longer"])
async def test_a_damaged_snapshot_refuses_its_restore(damage):
    stage, _, _ = shaped()
    proven = await saved(stage)
    pages = stage.directory.snapshot(proven.id) / "pages.img"
    if damage == "missing":
        del stage.ports.files.content[pages]
    else:
        stage.ports.files.put(pages, {"other": b"PAGE", "longer": b"page and more"}[damage])
    refused: Any = await restore_sandbox(stage, c.RestoreSandbox(snapshot=proven))
    assert refused.problem.reason is Reason.SNAPSHOT_CORRUPT
    assert uri_of(stage.directory.snapshot(proven.id)) == proven.uri


@pytest.mark.parametrize("command", [c.CancelStep(), c.BeginAnew()])
async def test_what_starts_no_step_is_performed_by_nobody(command):
    stage, _, _ = shaped()
    with pytest.raises(ValueError, match=f"no step performs {type(command).__name__}"):
        await Steps(stage).perform(command, an_actor())


async def test_a_step_without_its_sandbox_fails_with_a_reason():
    stage, _, _ = shaped()
    stage.sandbox = None
    for command in (c.VerifyContainers(), c.SaveSnapshot()):
        assert await reason_of(Steps(stage).perform(command, an_actor())) is Reason.SANDBOX_DIED
    assert await Steps(stage).sandbox_fate() is e.SandboxFate.DEAD
