"""A client's command inside a container: what it is told, and what must hold while it runs and afterwards."""

from functools import partial
from types import SimpleNamespace

import anyio
import pytest

from actors.ports import CLIENT_STREAM
from actors.runsc.driver import Target
from actors.steps.executing import EXECUTIONS_MAX, executing
from actors.steps.suspend import save_snapshot
from statemachine.events import SnapshotProven, SuspendRefused
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.step_stage import an_actor, shaped
from tests.fakes.performer import failing
from tests.fakes.sandbox import RUNTIME, STATE

pytestmark = pytest.mark.anyio

ACTIVATION = STATE.activation("x")


def a_stage(confine=None):
    """With a sandbox whose commands are a real driver's words, and a note of what was ended."""
    stage, sandbox, _ = shaped("one", "two")
    ended = list[str]()

    async def end_exec(_call, target, pid_file):
        await anyio.lowlevel.checkpoint()
        ended.append(f"{target.name} {pid_file.name}")

    async def doubt(name):
        sandbox.doubted.add(name)

    sandbox.runsc = SimpleNamespace(
        path=RUNTIME.path, flags=RUNTIME.flags, root=ACTIVATION / "runsc", activation=ACTIVATION, confine=confine,
        end_exec=end_exec,
    )  # fmt: skip
    sandbox.targets = {name: Target.of(name, f"id-{name}", env=("PATH=/bin:/sbin",)) for name in ("one", "two")}
    sandbox.doubt = doubt
    return stage, sandbox, ended


def executed(stage, name, command, **more):
    return executing(stage, name, command, partial(anyio.move_on_after, shield=True), **more)


async def refusal(stage, name):
    with pytest.raises(ProblemError) as caught:
        async with executed(stage, name, ["true"]):
            pass
    return caught.value.problem.reason


async def test_the_client_is_told_the_whole_command_as_the_containers_user_and_where_its_streams_are():
    stage, _sandbox, _ended = a_stage()
    async with executed(stage, "one", ["sh", "-c", "x"]) as execution:
        assert execution.argv[0] == "/runsc"
        assert f"--root={ACTIVATION / 'runsc'}" in execution.argv
        assert execution.argv[-5:] == ("--user=0:0", "id-one", "sh", "-c", "x")
        assert f"--internal-pid-file={execution.pid_file}" in execution.argv
        assert execution.streams.parent == ACTIVATION
        assert execution.streams.name.startswith(CLIENT_STREAM)
        assert (execution.stdin, execution.kill[-1], execution.container) == (None, "kill", "id-one")


async def test_where_a_device_is_claimed_it_goes_by_way_of_the_confining_program():
    stage, _sandbox, _ended = a_stage(confine=ACTIVATION / "confine/confine")
    async with executed(stage, "one", ["sh", "-c", "x"]) as execution:
        assert execution.stdin == ACTIVATION / "confine/confine"
        assert execution.argv[-7:] == ("confine", "/bin/sh", "/sbin/sh", "", "sh", "-c", "x")


@pytest.mark.parametrize("confine", [None, ACTIVATION / "confine/confine"])
async def test_at_a_terminal_stdin_is_the_clients_and_the_confining_program_another_descriptor(confine):
    stage, _sandbox, _ended = a_stage(confine=confine)
    async with executed(stage, "one", ["sh"], term="vt100") as execution:
        assert execution.stdin is None
        assert execution.is_confined == (confine is not None)
        assert "--env=TERM=vt100" in execution.argv
        assert ("--exec-fd=3" in execution.argv) == execution.is_confined
    async with executed(stage, "one", ["sh"]) as execution:
        assert (execution.stdin, execution.is_confined) == (confine, confine is not None)


async def test_no_suspend_begins_beside_it_and_one_does_afterwards():
    stage, sandbox, _ended = a_stage()
    actor = an_actor(None, None, names=("one", "two"))
    async with executed(stage, "one", ["true"]):
        refused = await save_snapshot(stage, actor)
        assert isinstance(refused, SuspendRefused)
        assert refused.problem.reason is Reason.OPERATION_IN_PROGRESS
        assert "checkpoint" not in sandbox.story
    assert isinstance(await save_snapshot(stage, actor), SnapshotProven)


async def test_what_is_left_of_it_is_ended_and_its_files_are_removed_also_when_the_body_is_cancelled():
    stage, _sandbox, ended = a_stage()
    files = stage.ports.files
    async with anyio.create_task_group() as group, executed(stage, "one", ["true"]) as execution:
        for suffix in (".log", ".pid", ".stdout"):
            files.put(execution.streams.with_suffix(suffix), b"7\n")
        group.cancel_scope.cancel()
    assert ended == [f"one {execution.pid_file.name}"]
    assert [path for path in files.content if path.name.startswith(CLIENT_STREAM)] == []
    assert stage.executions == 0


async def test_a_command_that_was_begun_and_never_started_leaves_its_container_in_doubt():
    stage, sandbox, ended = a_stage()
    async with executed(stage, "one", ["true"]):
        pass  # nobody has even begun
    assert sandbox.doubted == set()
    async with executed(stage, "one", ["nonsense"]) as execution:
        stage.ports.files.put(execution.log, b"{}")
    assert (sandbox.doubted, ended) == ({"one"}, [])


async def test_whatever_fails_afterwards_it_does_not_count_any_more():
    stage, sandbox, _ended = a_stage()

    async def end_exec(*_arguments):
        await anyio.lowlevel.checkpoint()
        raise failing()

    sandbox.runsc.end_exec = end_exec
    async with executed(stage, "one", ["true"]) as execution:
        stage.ports.files.put(execution.pid_file, b"7\n")
    assert stage.executions == 0


async def test_a_sandbox_that_is_not_the_live_one_any_more_is_left_alone():
    stage, _sandbox, ended = a_stage()
    async with executed(stage, "one", ["true"]) as execution:
        stage.ports.files.put(execution.pid_file, b"7\n")
        stage.sandbox = None
    assert ended == []


async def test_a_container_that_is_not_there_or_has_ended_and_too_many_commands_are_refused():
    stage, _sandbox, _ended = a_stage()
    assert await refusal(stage, "three") is Reason.INVALID_REQUEST
    stage.exited["two"] = 0
    assert await refusal(stage, "two") is Reason.CONTAINER_EXITED
    stage.told = {"one": anyio.Event()}
    stage.told["one"].set()
    assert await refusal(stage, "one") is Reason.CONTAINER_EXITED
    stage.told = {}
    stage.executions = EXECUTIONS_MAX
    assert await refusal(stage, "one") is Reason.OPERATION_IN_PROGRESS
    stage.sandbox = None
    assert await refusal(stage, "one") is Reason.SANDBOX_DIED
