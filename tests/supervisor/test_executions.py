"""Commands of clients: who may, for how long it holds, and that a shutdown waits for none of them."""

from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from actors.steps import executing
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor import shutdown
from supervisor.client import call, holding
from supervisor.control import ControlServer, open_control_socket
from supervisor.executions import ARGUMENTS_MAX, Executions
from supervisor.host.net import HostNet
from supervisor.peers import Peers
from tests.actors.test_steps_executing import a_stage
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio

BOUND_S = 60.0


class Bench:
    """A worker with one running actor, a control socket, and clients that execute."""

    def __init__(self, stand, stage, path):
        self.stand, self.stage, self.path = stand, stage, path
        self.executions, self.net = Executions(), HostNet()
        self.performer = self.executions.performer(stage)

    def executing(self, command=("true",), container="one", **more):
        arguments = {"uid": "a1", "container": container, "command": list(command), **more}
        return holding(self.net, self.path, "exec", **arguments)

    async def refusal(self, **arguments):
        with pytest.raises(ProblemError) as caught:
            await call(self.net, self.path, "exec", **{"uid": "a1", "container": "one", "command": ["x"], **arguments})
        return caught.value.problem.reason

    async def ended(self):
        with anyio.fail_after(BOUND_S):
            while self.stage.executions:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def a_bench(tmp_path):
    stage, _sandbox, _ended = a_stage()
    path = tmp_path / "control.sock"
    async with (
        a_stand() as stand,
        open_control_socket(HostNet(), path, Peers()) as listener,
        anyio.create_task_group() as group,
    ):
        bench = Bench(stand, stage, path)
        server = ControlServer(listener=listener, operations=bench.executions.operations(stand.worker))
        group.start_soon(server.run)
        await stand.running()
        yield bench
        group.cancel_scope.cancel()


async def test_it_holds_for_as_long_as_the_client_keeps_its_connection(tmp_path):
    async with a_bench(tmp_path) as bench:
        async with bench.executing() as plan:
            assert plan["argv"][-1] == "true"
            await anyio.wait_all_tasks_blocked()
            assert bench.stage.executions == 1
            async with bench.executing(["other"]):
                assert bench.stage.executions == 2
        await bench.ended()


async def test_a_client_that_says_more_or_sends_no_more_has_ended_it(tmp_path):
    async with a_bench(tmp_path) as bench:
        for say in ("more", "no more"):
            connection = await bench.net.connect_unix(bench.path)
            async with connection.stream as stream:
                await stream.send(b'{"v":1,"op":"exec","uid":"a1","container":"one","command":["x"]}\n')
                assert (await stream.receive()).startswith(b'{"ok":true')
                assert bench.stage.executions == 1
                await (stream.send(b"\n") if say == "more" else stream.send_eof())
                await bench.ended()


@pytest.mark.parametrize("command", [[], "true", [""], ["a", 7], ["a\0b"], None, ["x"] * (ARGUMENTS_MAX + 1)])
async def test_what_is_no_command_is_refused(tmp_path, command):
    async with a_bench(tmp_path) as bench:
        assert await bench.refusal(command=command) is Reason.INVALID_REQUEST
        assert bench.stage.executions == 0


@pytest.mark.parametrize("term", ["", "a b", "../x", "-x", "x" * 65, 7, "x\n", "é"])
async def test_what_is_no_kind_of_terminal_is_refused(tmp_path, term):
    async with a_bench(tmp_path) as bench:
        assert await bench.refusal(term=term) is Reason.INVALID_REQUEST
        assert bench.stage.executions == 0


async def test_a_command_at_a_terminal_is_told_what_kind_it_is_and_another_one_nothing(tmp_path):
    async with a_bench(tmp_path) as bench:
        async with bench.executing(term="xterm-256color") as plan:
            assert "--env=TERM=xterm-256color" in plan["argv"]
            assert (plan["stdin"], plan["isConfined"]) == (None, False)
        async with bench.executing(term=None) as plan:
            assert not [word for word in plan["argv"] if "TERM" in word]


async def test_who_does_not_run_executes_nothing(tmp_path):
    async with a_bench(tmp_path) as bench:
        assert await bench.refusal(uid="nobody") is Reason.ACTOR_NOT_FOUND
        assert await bench.refusal(container="three") is Reason.INVALID_REQUEST
        await bench.stand.submit(generation=2, spec__desiredState="Suspended")
        await bench.stand.until("Suspended")
        assert await bench.refusal() is Reason.OPERATION_IN_PROGRESS


async def test_who_names_no_container_of_the_actor_is_told_which_there_are_and_how_to_write_the_command(tmp_path):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ProblemError) as caught:
            await call(bench.net, bench.path, "exec", uid="a1", container="exit 3", command=["sh"])
    hint = caught.value.problem.hint
    assert hint == "`greenroom exec a1 -c NAME -- COMMAND…`, and NAME is one of one, two; `--` before the command."


class Hung:
    """A command that is left inside and whose end hangs."""

    def __init__(self, bench, plan):
        bench.stage.ports.files.put(Path(plan["pidFile"]), b"7\n")
        bench.stage.sandbox.runsc.end_exec = self._end_exec
        self.begun = anyio.Event()

    async def _end_exec(self, *_arguments):
        self.begun.set()
        await anyio.sleep_forever()


async def test_one_that_hangs_is_given_up_with_the_time_of_the_shutdown(tmp_path, monkeypatch):
    """A second signal leaves some seconds for all, also for the look for what is left of a command."""
    monkeypatch.setattr(executing, "FINISH_S", 1000 * BOUND_S)
    monkeypatch.setattr(shutdown, "HURRIED_S", 0.0)
    monkeypatch.setattr(shutdown, "LAST_S", 0.0)
    async with a_bench(tmp_path) as bench, bench.executing() as plan:
        hung = Hung(bench, plan)
        bench.executions.end()
        with anyio.fail_after(BOUND_S):
            await hung.begun.wait()
            await bench.executions.ended("another")
            bench.stand.worker.shutdown.ask()
            assert bench.stage.executions == 1
            bench.stand.worker.shutdown.ask()
            await bench.executions.ended("a1")
        assert bench.stage.executions == 0


async def test_a_shutdown_ends_those_that_run_before_it_goes_on_and_lets_none_begin(tmp_path):
    async with a_bench(tmp_path) as bench, bench.executing():
        bench.executions.end()
        with anyio.fail_after(BOUND_S):
            await bench.executions.ended("a1")
        assert bench.stage.executions == 0
        assert await bench.refusal() is Reason.OPERATION_IN_PROGRESS
        bench.stand.worker.shutdown.ask()
        assert await bench.refusal() is Reason.WORKER_DRAINING
