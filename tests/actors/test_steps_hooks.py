"""Hooks around a suspend: when they run, where, and what comes of their failures."""

import attrs
import pytest

from actors.assignment import ExecAction, Lifecycle, SignalAction
from actors.manifest import ShapeUser
from actors.ports import Exit, Finished
from actors.steps.hooks import HOOK_S, after_thaw, before_suspend
from actors.steps.suspend import save_snapshot
from actors.steps.thaw import thaw
from actors.steps.verify import verify_containers
from statemachine.events import SnapshotProven, SuspendRefused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.step_stage import an_actor, reason_of, shaped

pytestmark = pytest.mark.anyio

LET_GO, TAKE_BACK = ExecAction(("/bin/let-go",)), SignalAction("USR1")
PROBE = {"wakeupProbe": {"exec": ["/bin/ready"]}}


def hooked(*containers, before=None, after=None, **spec):
    stage, sandbox, marks = shaped(*containers, **spec)
    stage.assignment = attrs.evolve(stage.assignment, lifecycle=Lifecycle(pre_suspend=before, post_resume=after))
    return stage, sandbox, marks


def gone(name):
    return ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.SANDBOX_DIED, subject=name, message="gone"))


def late(name):
    message = "runsc exec did not end within 30 s"
    return ProblemError(
        Problem(step=Step.SUPERVISE, reason=Reason.STEP_DEADLINE_EXCEEDED, subject=name, message=message)
    )


async def test_pre_suspend_has_ended_before_the_freeze():
    stage, sandbox, marks = hooked(before=LET_GO)
    assert isinstance(await save_snapshot(stage, an_actor()), SnapshotProven)
    assert sandbox.story.index("execute main") < sandbox.story.index("freeze")
    assert marks.index("PreSuspend") < marks.index("Paused")


async def test_it_runs_in_every_container_that_lives_as_the_user_of_each():
    stage, sandbox, _ = hooked("main", "side", "done", before=LET_GO)
    stage.shapes["side"] = attrs.evolve(stage.shapes["side"], user=ShapeUser(uid=1000, gid=1001))
    await before_suspend(stage, an_actor(None, None, 0, names=("main", "side", "done")))
    assert sorted(sandbox.story) == ["execute main", "execute side"]
    assert sorted(sandbox.executed_as) == ["0:0", "1000:1001"]


async def test_a_signal_goes_to_the_first_process():
    stage, sandbox, _ = hooked(before=SignalAction("USR2"))
    sandbox.obeys = False
    await before_suspend(stage, an_actor())
    assert sandbox.story == ["USR2 main"]


async def test_without_a_hook_nothing_is_run_and_nothing_is_marked():
    stage, sandbox, marks = hooked()
    await before_suspend(stage, an_actor())
    assert (sandbox.story, marks) == ([], [])


async def test_a_hook_that_fails_refuses_the_suspend_and_nothing_is_frozen():
    stage, sandbox, _ = hooked(before=LET_GO)
    sandbox.probes = [3]
    refused = await save_snapshot(stage, an_actor())
    assert isinstance(refused, SuspendRefused)
    assert (refused.problem.reason, refused.problem.subject) == (Reason.HOOK_FAILED, "main")
    assert "exit code 3" in refused.problem.message
    assert "freeze" not in sandbox.story


async def test_what_a_hook_wrote_last_is_in_the_detail():
    stage, sandbox, _ = hooked(before=LET_GO)

    async def execute(_name, _argv, *, deadline_s, user):
        assert deadline_s == HOOK_S
        return Finished(exit=Exit(code=1), stderr=f"no GPU to let go of, says {user}".encode())

    sandbox.execute = execute
    with pytest.raises(ProblemError) as caught:
        await before_suspend(stage, an_actor())
    assert caught.value.problem.detail == "no GPU to let go of, says 0:0"


async def test_a_hook_that_does_not_end_refuses_the_suspend():
    stage, sandbox, _ = hooked(before=LET_GO)
    sandbox.fails["execute main"] = late("main")
    with pytest.raises(ProblemError) as caught:
        await before_suspend(stage, an_actor())
    assert caught.value.problem.reason is Reason.HOOK_FAILED
    assert "within 30 s" in caught.value.problem.message


async def test_the_others_run_to_their_end_when_one_fails():
    stage, sandbox, _ = hooked("main", "side", before=LET_GO)
    sandbox.fails["execute main"] = late("main")
    assert await reason_of(before_suspend(stage, an_actor(None, None, names=("main", "side")))) is Reason.HOOK_FAILED
    assert sorted(sandbox.story) == ["execute main", "execute side"]
    assert len(sandbox.executed_as) == 1, "side ended well"


async def test_the_death_of_the_sandbox_keeps_its_reason():
    stage, sandbox, _ = hooked(before=LET_GO)
    sandbox.fails["execute main"] = gone("main")
    assert await reason_of(before_suspend(stage, an_actor())) is Reason.SANDBOX_DIED


async def test_post_resume_runs_after_a_restore_and_before_the_probe():
    stage, sandbox, _ = hooked(after=TAKE_BACK, **PROBE)
    stage.is_restored, sandbox.obeys = True, False
    await verify_containers(stage)
    assert sandbox.story == ["inspect main", "USR1 main", "execute main"]


async def test_post_resume_does_not_run_after_a_cold_start():
    stage, sandbox, _ = hooked(after=TAKE_BACK)
    await verify_containers(stage)
    assert sandbox.story == ["inspect main"]


async def test_post_resume_that_fails_is_why_the_restore_has():
    stage, sandbox, _ = hooked(after=LET_GO, **PROBE)
    stage.is_restored, sandbox.probes = True, [1]
    assert await reason_of(verify_containers(stage)) is Reason.HOOK_FAILED


async def test_post_resume_runs_when_a_suspend_came_to_nothing_after_pre_suspend():
    stage, sandbox, _ = hooked(before=LET_GO, after=TAKE_BACK)
    sandbox.obeys, sandbox.executing = False, True
    assert isinstance(await save_snapshot(stage, an_actor()), SuspendRefused)
    before = list(sandbox.story)
    await thaw(stage)
    assert "USR1 main" not in before, "exec in flight refuses before any hook"
    assert "USR1 main" not in sandbox.story

    sandbox.executing, sandbox.fails["checkpoint"] = False, late("main")
    assert await reason_of(save_snapshot(stage, an_actor())) is Reason.STEP_DEADLINE_EXCEEDED
    sandbox.story.clear()
    await thaw(stage)
    assert sandbox.story.index("thaw") < sandbox.story.index("USR1 main")


async def test_also_when_pre_suspend_itself_has_failed():
    stage, sandbox, _ = hooked(before=LET_GO, after=TAKE_BACK)
    sandbox.probes, sandbox.obeys = [1], False
    await save_snapshot(stage, an_actor())
    await thaw(stage)
    assert sandbox.story[-1] == "USR1 main"


async def test_it_runs_once_for_each_suspend():
    stage, sandbox, _ = hooked(before=LET_GO, after=TAKE_BACK)
    sandbox.probes, sandbox.obeys = [1], False
    await save_snapshot(stage, an_actor())
    await thaw(stage)
    await thaw(stage)
    assert sandbox.story.count("USR1 main") == 1


async def test_post_resume_that_fails_after_a_thaw_is_told_and_ends_nothing():
    stage, sandbox, marks = hooked("main", "side", after=LET_GO)
    stage.let_go = ("main", "side")
    sandbox.fails["execute side"] = late("side")
    await after_thaw(stage)
    assert marks == ["PostResumeFailed side"]
    assert stage.let_go == ()
