"""Suspend and thaw on a sandbox that is none: the order, the undo, and what never costs an actor."""

import errno
from typing import Any

import anyio
import pytest

from actors.snapshots import REMOVED_NAME, find_snapshot
from actors.steps.stage import Freeze
from actors.steps.suspend import save_snapshot
from actors.steps.teardown import roll_back
from actors.steps.thaw import thaw
from statemachine import events as e
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.actors.step_stage import ROLL_BACK, an_actor, reason_of, saved, shaped
from tests.fakes.performer import failing

pytestmark = pytest.mark.anyio

LOOKED_AT = ["is_executing", "memory_bytes"]
"""What is asked before anything is touched (`actors.steps.refusals`)."""


async def test_a_suspend_freezes_looks_saves_proves_and_writes_the_manifest_last():
    stage, sandbox, marks = shaped()
    snapshot = await saved(stage)
    assert sandbox.story == [*LOOKED_AT, "freeze", "inspect main", "is_executing", "checkpoint"]
    assert marks == ["Paused", "FilesWritten", "FilesProven", "ManifestWritten"]
    assert stage.ports.files.done[-1][1].name == "manifest.json"
    assert await find_snapshot(stage.ports.files, snapshot.uri, step=Step.RESTORE) == snapshot
    # It stays frozen: it must not run past its snapshot.
    assert stage.freeze is Freeze.FROZEN


async def test_what_is_executed_inside_once_it_was_looked_for_fails_the_suspend_before_anything_is_saved():
    stage, sandbox, _ = shaped()
    freeze = sandbox.freeze

    async def freeze_what_executes():
        await freeze()
        sandbox.executing = True

    sandbox.freeze = freeze_what_executes
    assert await reason_of(save_snapshot(stage, an_actor())) is Reason.OPERATION_IN_PROGRESS
    assert "checkpoint" not in sandbox.story


async def test_a_container_that_is_done_is_taken_out_before_the_freeze_and_once_only():
    stage, sandbox, _ = shaped("one", "two")
    actor = an_actor(0, None, names=("one", "two"))
    proven: Any = await save_snapshot(stage, actor)
    assert sandbox.story[:4] == [*LOOKED_AT, "delete one", "freeze"]
    assert proven.snapshot.exited == (("one", 0),)
    await save_snapshot(stage, actor)
    assert sandbox.story.count("delete one") == 1


async def test_all_containers_are_looked_at_at_once_while_the_actor_stands_still():
    stage, sandbox, _ = shaped("one", "two", "three")
    inspect, asked, all_asked = sandbox.inspect, [], anyio.Event()

    async def inspect_beside_the_others(name):
        asked.append(name)
        if len(asked) == len(sandbox.containers):
            all_asked.set()
        with anyio.fail_after(30):
            await all_asked.wait()
        return await inspect(name)

    sandbox.inspect = inspect_beside_the_others
    actor = an_actor(None, None, None, names=sandbox.containers)
    assert isinstance(await save_snapshot(stage, actor), e.SnapshotProven)
    assert sorted(asked) == ["one", "three", "two"]
    assert sandbox.story.index("checkpoint") > max(sandbox.story.index(f"inspect {name}") for name in asked)


async def test_a_container_that_is_found_exited_under_the_freeze_fails_the_suspend():
    stage, sandbox, _ = shaped()
    sandbox.stopped.add("main")
    assert await reason_of(save_snapshot(stage, an_actor())) is Reason.CONTAINER_EXITED
    assert stage.freeze is Freeze.FROZEN


@pytest.mark.parametrize(
    ("operation", "number", "reason"),
    [
        ("sync_tree", errno.ENOSPC, Reason.INSUFFICIENT_DISK),
        ("sync_tree", errno.EIO, Reason.STATE_UNWRITABLE),
        ("digest", errno.EIO, Reason.STATE_UNWRITABLE),
        ("replace", errno.ENOSPC, Reason.INSUFFICIENT_DISK),
        ("replace", errno.EROFS, Reason.STATE_UNWRITABLE),
    ],
)
async def test_a_snapshot_that_cannot_be_made_durable_is_none_and_the_actor_runs_on(operation, number, reason):
    stage, sandbox, _ = shaped()
    # A file is replaced for a try before; that it cannot be is a refusal.
    stage.ports.files.fail(operation, "manifest.json" if operation == "replace" else "*", number)
    assert await reason_of(save_snapshot(stage, an_actor())) is reason
    stage.ports.files.failures.clear()
    assert await thaw(stage) == e.Thawed()
    assert sandbox.story[-2:] == ["thaw", "inspect pause"]
    assert stage.freeze is Freeze.NOT_FROZEN
    assert not stage.ports.files.below(stage.directory.snapshots)


@pytest.mark.parametrize("image", [{}, {"checkpoint.img": b""}, {"pages.img": b"x", "dir/x": b"y"}])
async def test_a_checkpoint_that_succeeded_without_its_files_is_none(image):
    stage, sandbox, _ = shaped()
    sandbox.image = image
    assert await reason_of(save_snapshot(stage, an_actor())) in {Reason.RUNTIME_FAILED, Reason.STATE_UNWRITABLE}


async def test_a_sandbox_that_was_not_frozen_is_not_thawed():
    stage, sandbox, _ = shaped()
    assert await thaw(stage) == e.Thawed()
    assert sandbox.story == []


async def test_a_runtime_that_cannot_be_started_has_frozen_nothing():
    """A disk or a memory that is full for a moment must not end the running actor as CouldNotThaw."""
    stage, sandbox, _ = shaped()
    sandbox.fails["freeze"] = failing(Reason.RUNTIME_UNAVAILABLE)
    assert await reason_of(save_snapshot(stage, an_actor())) is Reason.RUNTIME_UNAVAILABLE
    assert await thaw(stage) == e.Thawed()
    assert "thaw" not in sandbox.story


@pytest.mark.parametrize("reason", [Reason.RUNTIME_FAILED, Reason.STEP_DEADLINE_EXCEEDED])
async def test_a_freeze_that_failed_in_the_middle_may_have_frozen_it(reason):
    stage, sandbox, _ = shaped()
    sandbox.fails["freeze"] = failing(reason)
    assert await reason_of(save_snapshot(stage, an_actor())) is reason
    await thaw(stage)
    assert sandbox.story[-2:] == ["thaw", "inspect pause"]


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_thaw_that_is_refused_is_a_failure_only_when_the_sandbox_stands_still(frozen):
    stage, sandbox, _ = shaped()
    stage.freeze, sandbox.frozen = Freeze.FROZEN, frozen
    sandbox.fails["thaw"] = failing()
    if frozen:
        assert await reason_of(thaw(stage)) is Reason.RUNTIME_FAILED
        assert stage.freeze is Freeze.FROZEN
    else:
        assert await thaw(stage) == e.Thawed()
        assert stage.freeze is Freeze.NOT_FROZEN


async def test_a_thaw_that_is_well_and_did_nothing_is_a_failure():
    stage, sandbox, _ = shaped()
    stage.freeze, sandbox.frozen, sandbox.stays_frozen = Freeze.FROZEN, True, True
    assert await reason_of(thaw(stage)) is Reason.RUNTIME_FAILED
    assert stage.freeze is Freeze.FROZEN


async def test_a_thawed_sandbox_that_cannot_be_looked_at_is_not_ended_for_it():
    stage, sandbox, _ = shaped()
    stage.freeze, sandbox.frozen = Freeze.FROZEN, True
    sandbox.fails["inspect pause"] = failing()
    assert await thaw(stage) == e.Thawed()


async def test_unproven_files_that_cannot_be_removed_never_cost_the_running_actor():
    stage, sandbox, _ = shaped()
    sandbox.fails["checkpoint"] = failing()
    await reason_of(save_snapshot(stage, an_actor()))
    stage.ports.files.put(stage.unproven / "pages.img", b"half")
    stage.ports.files.fail("remove_tree", stage.unproven, errno.EBUSY)
    assert await thaw(stage) == e.Thawed()
    assert stage.unproven is not None
    stage.ports.files.failures.clear()
    await roll_back(stage, ROLL_BACK, None)
    assert stage.unproven is None
    assert not stage.ports.files.below(stage.directory.snapshots)


async def test_a_snapshot_that_was_given_up_whole_is_none_even_while_its_files_are_removed():
    stage, _, _ = shaped()
    stage.unproven = stage.directory.snapshot("s" + "0" * 16)
    for name in ("pages.img", "manifest.json"):
        stage.ports.files.put(stage.unproven / name, b"x")
    stage.ports.files.fail("remove_tree", stage.unproven, errno.EIO)
    await thaw(stage)
    assert set(stage.ports.files.below(stage.unproven)) == {"pages.img", REMOVED_NAME}


async def test_a_thaw_that_is_cancelled_still_thaws():
    stage, sandbox, _ = shaped()
    stage.freeze = Freeze.FROZEN
    with anyio.CancelScope() as scope:
        scope.cancel()
        await thaw(stage)
    assert sandbox.story == ["thaw", "inspect pause"]
    assert stage.freeze is Freeze.NOT_FROZEN
