"""Verify and watch on a sandbox that is none."""

from functools import partial
from typing import Any

import anyio
import attrs
import pytest

from actors.manifest import ShapeUser
from actors.steps.verify import verify_containers
from actors.steps.watch import CODE_UNKNOWN, FAILURES_MAX, watch_sandbox
from statemachine import events as e
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.step_stage import SHAPE, shaped
from tests.fakes.performer import failing

pytestmark = pytest.mark.anyio


async def test_a_container_without_a_probe_that_has_exited_is_the_watchs_to_tell():
    stage, sandbox, _ = shaped()
    sandbox.stopped.add("main")
    assert await verify_containers(stage) == e.ContainersVerified()


@pytest.mark.parametrize("spec", [{}, {"wakeupProbe": {"exec": ["/bin/ok"]}}])
async def test_nothing_is_called_well_before_the_end_of_a_container_is_told(spec):
    stage, sandbox, _ = shaped("main", **spec)
    sandbox.stopped.add("main")
    stage.told["main"] = anyio.Event()
    ended: list[Any] = []

    async def verify():
        try:
            ended.append(await verify_containers(stage))
        except ProblemError as error:
            ended.append(error.problem.reason)

    async with anyio.create_task_group() as group:
        group.start_soon(verify)
        await anyio.wait_all_tasks_blocked()
        assert ended == []
        stage.told["main"].set()
    assert ended == [Reason.RESTORED_NOT_SERVING if spec else e.ContainersVerified()]


PROBE = {"wakeupProbe": {"exec": ["/bin/ok"], "timeoutSeconds": 5}}


async def test_a_probe_is_tried_until_it_succeeds():
    stage, sandbox, _ = shaped("main", **PROBE)
    sandbox.probes = [1, 1]
    await verify_containers(stage)
    assert sandbox.story.count("execute main") == 3


async def test_a_probe_is_executed_as_the_containers_own_user():
    stage, sandbox, _ = shaped("main", **PROBE)
    stage.shapes["main"] = attrs.evolve(SHAPE, user=ShapeUser(uid=1000, gid=50))
    await verify_containers(stage)
    assert sandbox.executed_as == ["1000:50"]


async def test_a_probe_that_does_not_succeed_in_its_time_says_what_it_said_last():
    stage, sandbox, _ = shaped("main", **PROBE)
    sandbox.probes = [3] * 1000
    probe = attrs.evolve(stage.assignment.containers[0].wakeup_probe, timeout_s=0.05)
    container = attrs.evolve(stage.assignment.containers[0], wakeup_probe=probe)
    stage.assignment = attrs.evolve(stage.assignment, containers=(container,))
    with pytest.raises(ProblemError) as caught:
        await verify_containers(stage)
    assert caught.value.problem.reason is Reason.RESTORED_NOT_SERVING
    assert "exit code 3" in caught.value.problem.message


async def watched(stage, act, expected):
    """What the watch feeds while something is done."""
    fed = []
    done = anyio.Event()

    async def feed(event):
        fed.append(event)
        if len(fed) == expected:
            done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(partial(watch_sandbox, stage, feed))
        await anyio.wait_all_tasks_blocked()
        act()
        with anyio.fail_after(30):
            await done.wait()
        group.cancel_scope.cancel()
    return fed


async def test_the_end_of_a_container_is_told_with_its_code():
    stage, sandbox, _ = shaped("one", "two")
    sandbox.codes["two"] = 7
    fed = await watched(stage, sandbox.exits["two"].set, 1)
    assert fed == [e.ContainerExited(container="two", exit_code=7)]


async def test_a_container_that_was_taken_out_is_not_told():
    stage, sandbox, _ = shaped("one", "two")
    stage.exited["one"] = 0

    def act():
        sandbox.exits["one"].set()
        sandbox.exits["two"].set()

    assert [event.container for event in await watched(stage, act, 1)] == ["two"]


async def test_the_death_of_the_sandbox_is_told_and_not_that_of_its_containers():
    stage, sandbox, _ = shaped("one", "two")

    def act():
        for name in ("one", "two"):
            sandbox.fails[f"exit_code {name}"] = failing(Reason.SANDBOX_DIED)
            sandbox.exits[name].set()
        sandbox.process.gone.set()

    (fed,) = await watched(stage, act, 1)
    assert isinstance(fed, e.SandboxDied)
    assert "signal 9" in fed.problem.message


@pytest.mark.parametrize("reason", [Reason.RUNTIME_UNAVAILABLE, Reason.RUNTIME_FAILED, Reason.SANDBOX_DIED])
async def test_a_question_that_fails_says_nothing_of_the_container(monkeypatch, reason):
    monkeypatch.setattr("actors.steps.watch.ASK_AGAIN_S", 0.0)
    stage, sandbox, _ = shaped()
    sandbox.stopped.add("main")
    answers = [failing(reason), failing(reason), 0]

    async def exit_code(_name, *, deadline_s):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    sandbox.exit_code = exit_code
    assert await watched(stage, sandbox.exits["main"].set, 1) == [e.ContainerExited(container="main", exit_code=0)]


async def test_a_stopped_container_whose_code_nobody_can_tell_has_ended_all_the_same(monkeypatch):
    monkeypatch.setattr("actors.steps.watch.ASK_AGAIN_S", 0.0)
    stage, sandbox, _ = shaped()
    sandbox.stopped.add("main")
    sandbox.fails["exit_code main"] = failing(Reason.RUNTIME_FAILED)
    fed = await watched(stage, sandbox.exits["main"].set, 1)
    assert fed == [e.ContainerExited(container="main", exit_code=CODE_UNKNOWN)]
    assert stage.told["main"].is_set()


def outliving(*reasons):
    """A container whose file server has ended and that lives: questions for its code fail so until it has stopped."""
    stage, sandbox, _ = shaped("main", "other")
    errors, told, asked = list(reasons), [], anyio.Event()
    original = sandbox.exit_code

    async def exit_code(name, *, deadline_s):
        if name == "main" and errors:
            raise failing(errors.pop(0))
        return await original(name, deadline_s=deadline_s)

    async def tell(problem):
        told.append(problem)
        asked.set()

    sandbox.exit_code, stage.tell = exit_code, tell
    return stage, sandbox, told, asked


@pytest.mark.parametrize(
    "reasons", [[Reason.STEP_DEADLINE_EXCEEDED], [Reason.RUNTIME_FAILED, Reason.RUNTIME_FAILED]], ids=str
)
async def test_a_container_that_lives_without_its_file_server_is_told_and_counts_when_it_has_stopped(
    monkeypatch, reasons
):
    monkeypatch.setattr("actors.steps.watch.ASK_AGAIN_S", 0.0)
    stage, sandbox, told, asked = outliving(*reasons)
    sandbox.codes["main"] = 7
    fed = []

    async def feed(event):
        fed.append(event)

    async with anyio.create_task_group() as group:
        group.start_soon(partial(watch_sandbox, stage, feed))
        sandbox.exits["main"].set()
        with anyio.fail_after(30):
            await asked.wait()
        await anyio.wait_all_tasks_blocked()
        assert [(each.reason, each.subject) for each in told] == [(Reason.FILE_SERVER_LOST, "main")]
        assert fed == []
        assert sandbox.doubted == {"main"}
        assert not stage.told["main"].is_set()
        sandbox.stopped.add("main")
        sandbox.stops.set()
        with anyio.fail_after(30):
            await stage.told["main"].wait()
        group.cancel_scope.cancel()
    assert fed == [e.ContainerExited(container="main", exit_code=7)]
    assert len(told) == 1


async def test_what_nobody_can_tell_of_a_container_is_no_end_of_it(monkeypatch):
    monkeypatch.setattr("actors.steps.watch.ASK_AGAIN_S", 0.0)
    stage, sandbox, _ = shaped()
    sandbox.fails["exit_code main"] = sandbox.fails["inspect main"] = failing(Reason.RUNTIME_UNAVAILABLE)
    looks = []
    original = sandbox.lives_on

    async def lives_on(name):
        looks.append(name)
        if len(looks) == FAILURES_MAX + 5:
            sandbox.fails.clear()
        return await original(name)

    sandbox.lives_on = lives_on
    assert await watched(stage, sandbox.exits["main"].set, 1) == [e.ContainerExited(container="main", exit_code=0)]
    assert len(looks) == FAILURES_MAX + 5


async def test_an_exit_code_is_asked_for_again_while_the_sandbox_is_frozen():
    stage, sandbox, _ = shaped()
    sandbox.stopped.add("main")
    sandbox.fails["exit_code main"] = failing(Reason.STEP_DEADLINE_EXCEEDED)
    original = sandbox.exit_code
    asked = []

    async def exit_code(name, *, deadline_s):
        asked.append(name)
        if len(asked) == 3:
            sandbox.fails.clear()
        return await original(name, deadline_s=deadline_s)

    sandbox.exit_code = exit_code
    assert await watched(stage, sandbox.exits["main"].set, 1) == [e.ContainerExited(container="main", exit_code=0)]
    assert len(asked) == 3
