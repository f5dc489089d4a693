"""What refuses a suspend before anything is touched: the reason, and that neither sandbox nor disk knows of it."""

import errno

import attrs
import pytest

from actors.assignment import SnapshotScope, Suspend
from actors.steps.refusals import MARGIN_BYTES
from actors.steps.suspend import save_snapshot
from actors.steps.thaw import thaw
from statemachine import events as e
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.actors.step_stage import an_actor, saved, shaped

pytestmark = pytest.mark.anyio

QUESTIONS = {"is_executing", "memory_bytes"}
MIB = 1 << 20


async def refusal_of(stage, sandbox, actor=None):
    """The problem of a suspend that is refused; nothing was touched, and nothing of it is left."""
    before = dict(stage.ports.files.content)
    refused = await save_snapshot(stage, actor or an_actor())
    assert isinstance(refused, e.SuspendRefused)
    assert set(sandbox.story) <= QUESTIONS
    assert await thaw(stage) == e.Thawed()
    assert set(sandbox.story) <= QUESTIONS
    assert without_directories(stage.ports.files.content) == without_directories(before)
    assert stage.unproven is None
    assert refused.problem.step is Step.SUSPEND
    return refused.problem


def without_directories(content):
    return {path: data for path, data in content.items() if isinstance(data, bytes)}


def an_exit(stage, sandbox):
    return an_actor(7)


def a_spoiled_exit(stage, sandbox):
    sandbox.spoiled.add("main")
    return an_actor(0)


def nothing_to_save(stage, sandbox):
    stage.assignment = attrs.evolve(stage.assignment, suspend=Suspend(scope=SnapshotScope.DATA))


def an_exec(stage, sandbox):
    sandbox.executing = True


def an_exec_that_nobody_can_see(stage, sandbox):
    sandbox.fails["is_executing"] = OSError(errno.EMFILE, "Too many open files")


def a_sandbox_that_nobody_can_measure(stage, sandbox):
    sandbox.fails["memory_bytes"] = PermissionError(errno.EACCES, "Permission denied")


def a_size_above_the_room(stage, sandbox):
    sandbox.memory, stage.ports.files.room_bytes = 64 * MIB, 64 * MIB + MARGIN_BYTES - 1


def a_disk_that_tells_nothing(stage, sandbox):
    stage.ports.files.fail("free_bytes", "*", errno.EIO)


def failing(operation, number):
    def fails(stage, sandbox):
        stage.ports.files.fail(operation, "*", number)

    return fails


REFUSALS = {
    "a container has failed": (an_exit, Reason.CONTAINER_EXITED, "exit code 7"),
    "one that ended well cannot be left out": (a_spoiled_exit, Reason.CONTAINER_EXITED, "cannot be left out"),
    "Data without a volume": (nothing_to_save, Reason.NO_DURABLE_VOLUME, "has none"),
    "an exec in flight": (an_exec, Reason.OPERATION_IN_PROGRESS, "executed inside"),
    "nobody can see whether": (an_exec_that_nobody_can_see, Reason.RUNTIME_FAILED, "Too many open files"),
    "nobody can see how large": (a_sandbox_that_nobody_can_measure, Reason.PROCESSES_UNREADABLE, "Permission denied"),
    "too large for the disk": (a_size_above_the_room, Reason.INSUFFICIENT_DISK, "68.0 MiB (64.0 MiB are the memory"),
    "a disk that tells nothing": (a_disk_that_tells_nothing, Reason.STATE_UNWRITABLE, "cannot be looked at"),
    "a full disk": (failing("replace", errno.ENOSPC), Reason.INSUFFICIENT_DISK, "nothing can be written"),
    "a full quota": (failing("replace", errno.EDQUOT), Reason.INSUFFICIENT_DISK, "nothing can be written"),
    "a read-only disk": (failing("replace", errno.EROFS), Reason.STATE_UNWRITABLE, "nothing can be written"),
    "no directory to be had": (failing("make_directory", errno.EACCES), Reason.STATE_UNWRITABLE, "nothing can be"),
    "what is tried stays": (failing("remove_file", errno.EIO), Reason.STATE_UNWRITABLE, "nothing can be written"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_suspend_is_refused_before_anything_is_touched(case):
    arrange, reason, words = REFUSALS[case]
    stage, sandbox, marks = shaped()
    problem = await refusal_of(stage, sandbox, arrange(stage, sandbox))
    assert problem.reason is reason
    assert words in problem.message
    assert marks == []


async def test_a_refused_actor_can_be_suspended_once_its_hindrance_is_gone():
    stage, sandbox, _ = shaped()
    sandbox.executing = True
    await refusal_of(stage, sandbox)
    sandbox.executing = False
    assert (await saved(stage)).id


async def test_a_snapshot_that_just_fits_is_made_and_only_the_memory_counts():
    stage, sandbox, _ = shaped()
    sandbox.memory, stage.ports.files.room_bytes = 64 * MIB, 64 * MIB + MARGIN_BYTES
    assert (await saved(stage)).id


async def test_of_a_container_that_failed_beside_one_that_is_done_none_is_taken_out():
    stage, sandbox, _ = shaped("done", "failed")
    problem = await refusal_of(stage, sandbox, an_actor(0, 1, names=("done", "failed")))
    assert problem.subject == "failed"


async def test_whatever_refuses_a_container_that_is_done_is_still_there():
    stage, sandbox, _ = shaped("done", "main")
    sandbox.executing = True
    await refusal_of(stage, sandbox, an_actor(0, None, names=("done", "main")))
    assert stage.exited == {}


async def test_what_is_tried_on_the_disk_is_no_part_of_the_snapshot():
    stage, _, _ = shaped()
    snapshot = await saved(stage)
    assert "probe" not in {path.name for path in stage.ports.files.content}
    assert set(stage.ports.files.below(stage.directory.snapshot(snapshot.id))) == {
        "checkpoint.img", "pages.img", "pages_meta.img", "manifest.json",
    }  # fmt: skip
