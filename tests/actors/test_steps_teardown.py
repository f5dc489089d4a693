"""The end of an activation, wished for or forced, and the release after a suspend."""

import errno
from typing import Any

import anyio
import attrs
import pytest

from actors.manifest import CHECKPOINT_FILES
from actors.snapshots import find_snapshot, newest
from actors.steps.performer import Steps
from actors.steps.release import release_sandbox
from actors.steps.stage import Freeze
from actors.steps.teardown import roll_back, stop_containers
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Ending
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.actors.step_stage import RELEASE, ROLL_BACK, an_actor, reason_of, saved, shaped
from tests.fakes.performer import a_snapshot, failing

pytestmark = pytest.mark.anyio


async def test_a_rollback_kills_and_removes_even_when_it_is_cancelled():
    stage, sandbox, _ = shaped()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await roll_back(stage, ROLL_BACK, None)
    assert sandbox.story == ["signal SIGKILL", "close"]
    assert (stage.activation, stage.sandbox) == (None, None)
    assert not stage.ports.files.below(stage.state_dir.sandboxes)


async def test_a_rollback_of_nothing_is_done():
    stage, _, _ = shaped()
    await roll_back(stage, ROLL_BACK, None)
    assert await roll_back(stage, ROLL_BACK, None) == e.RolledBack(origin=e.OriginVerdict.NONE)


async def test_a_rollback_tells_whether_its_origin_is_still_good():
    stage, _, _ = shaped()
    proven = await saved(stage)
    assert (await roll_back(stage, ROLL_BACK, proven)).origin is e.OriginVerdict.GOOD
    stage.ports.files.put(stage.directory.snapshot(proven.id) / "pages.img", b"PAGE")
    assert (await roll_back(stage, ROLL_BACK, proven)).origin is e.OriginVerdict.DAMAGED
    assert (await roll_back(stage, ROLL_BACK, a_snapshot(99))).origin is e.OriginVerdict.DAMAGED


@pytest.mark.parametrize("ending", Ending)
async def test_the_whole_origin_is_read_only_where_its_actor_may_go_back_to_it(ending):
    stage, _, _ = shaped()
    proven, files = await saved(stage), stage.ports.files
    read, digest = [], files.digest

    async def counted(path):
        read.append(path.name)
        return await digest(path)

    files.digest = counted
    told: Any = await Steps(stage).perform(ROLL_BACK, attrs.evolve(an_actor(), origin=proven, ending=ending))
    if ending is Ending.ORIGIN:
        assert (told.origin, sorted(read)) == (e.OriginVerdict.GOOD, sorted(CHECKPOINT_FILES))
    else:
        assert (told.origin, read) == (e.OriginVerdict.NONE, [])


async def test_a_snapshot_that_was_whole_when_the_sandbox_died_is_kept_and_told():
    stage, _, _ = shaped()
    snapshot = await saved(stage)
    assert await roll_back(stage, ROLL_BACK, None) == e.RolledBack(origin=e.OriginVerdict.NONE, saved=snapshot)
    assert await find_snapshot(stage.ports.files, snapshot.uri, step=Step.RESTORE) == snapshot
    assert await roll_back(stage, ROLL_BACK, None) == e.RolledBack(origin=e.OriginVerdict.NONE)


async def test_a_stop_undoes_a_snapshot_that_nobody_has_heard_of():
    stage, _, _ = shaped()
    await saved(stage)
    await stop_containers(stage, c.StopContainers(undo=(), grace_s=0.0))
    assert not stage.ports.files.below(stage.directory.snapshots)


async def test_a_release_that_cannot_end_the_sandbox_never_costs_the_proven_snapshot():
    stage, _, _ = shaped()
    proven = await saved(stage)
    stage.ports.files.fail("remove_tree", stage.activation, errno.EBUSY)
    assert await reason_of(release_sandbox(stage, RELEASE, proven)) is Reason.STATE_UNWRITABLE
    stage.ports.files.failures.clear()
    await stop_containers(stage, c.StopContainers(undo=(), grace_s=0.0))
    assert await find_snapshot(stage.ports.files, proven.uri, step=Step.RESTORE) == proven


async def test_what_cannot_be_removed_is_kept_in_mind_for_the_next_try():
    stage, _, _ = shaped()
    stage.ports.files.fail("remove_tree", stage.activation, errno.EBUSY)
    assert await reason_of(roll_back(stage, ROLL_BACK, None)) is Reason.STATE_UNWRITABLE
    assert stage.activation is not None
    stage.ports.files.failures.clear()
    await roll_back(stage, ROLL_BACK, None)
    assert stage.activation is None


@pytest.mark.parametrize(
    ("error", "reason"), [(errno.EIO, Reason.STATE_UNWRITABLE), (errno.ENOSPC, Reason.INSUFFICIENT_DISK)]
)
@pytest.mark.parametrize("command", [ROLL_BACK, c.StopContainers(undo=(), grace_s=0.0)], ids=["rollback", "stop"])
async def test_an_end_that_leaves_an_unfinished_snapshot_is_no_end(command, error, reason):
    stage, _, _ = shaped()
    stage.unproven = stage.directory.snapshot("s" + "0" * 16)
    stage.ports.files.put(stage.unproven / "pages.img", b"half")
    stage.ports.files.fail("remove_tree", stage.unproven, error)
    assert await reason_of(Steps(stage).perform(command, an_actor())) is reason
    assert stage.activation is None  # the rest is undone all the same
    stage.ports.files.failures.clear()
    await Steps(stage).perform(command, an_actor())
    assert stage.unproven is None
    assert not stage.ports.files.below(stage.directory.snapshots)


async def test_a_stop_asks_every_live_container_and_then_ends_the_sandbox():
    stage, sandbox, _ = shaped("one", "two", "three")
    stage.exited = {"three": 0}
    with anyio.fail_after(60):
        assert await stop_containers(stage, c.StopContainers(undo=(), grace_s=60)) == e.TornDown()
    assert sorted(sandbox.story[:2]) == ["TERM one", "TERM two"]
    assert sandbox.story[2:] == ["signal SIGKILL", "close"]


async def test_a_container_that_does_not_obey_is_killed_after_the_grace():
    stage, sandbox, _ = shaped()
    sandbox.obeys = False
    await stop_containers(stage, c.StopContainers(undo=(), grace_s=0.01))
    assert sandbox.story == ["TERM main", "signal SIGKILL", "close"]


@pytest.mark.parametrize("what", ["thaw", "TERM main"])
async def test_a_sandbox_that_takes_no_order_is_killed(what):
    stage, sandbox, _ = shaped()
    stage.freeze, sandbox.frozen = Freeze.FROZEN, True
    sandbox.fails[what] = failing()
    sandbox.obeys = False
    await stop_containers(stage, c.StopContainers(undo=(), grace_s=0.01))
    assert sandbox.story[-2:] == ["signal SIGKILL", "close"]


async def test_a_release_ends_the_sandbox_and_keeps_the_proven_snapshot_and_the_one_before_whatever_the_clock_said():
    stage, _, marks = shaped()
    ids = []
    for minute in (50, 40, 1):  # the clock goes back all the time
        stage.ports.wall.time_s = 60.0 * minute
        stage.freeze = Freeze.NOT_FROZEN
        ids.append(await saved(stage))
    await release_sandbox(stage, RELEASE, ids[-1])
    assert marks[-1] == "SandboxEnded"
    left = set(await stage.ports.files.list_directory(stage.directory.snapshots))
    assert left == {ids[1].id, ids[2].id}
    # A new life, or a restart, looks for the newest: it finds the last one, not the one of the latest hour.
    assert await newest(stage.ports.files, stage.directory.snapshots) == ids[2]
