"""Commands of clients: who may, for how long it holds, and that a shutdown waits for none of them."""

from contextlib import asynccontextmanager

import anyio
import pytest

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.client import call, holding
from supervisor.control import ControlServer
from supervisor.executions import ARGUMENTS_MAX, Executions
from supervisor.host.net import HostNet
from tests.actors.test_steps_executing import a_stage
from tests.fakes.ports import FakePorts
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio

BOUND_S = 60.0


class Bench:
    """A worker with one running actor, a control socket, and clients that execute."""

    def __init__(self, stand, stage, path):
        self.stand, self.stage, self.path = stand, stage, path
        self.executions, self.net = Executions(), HostNet()
        self.performer = self.executions.performer(stage)

    def executing(self, command=("true",), container="one"):
        arguments = {"uid": "a1", "container": container, "command": list(command)}
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
    async with a_stand() as stand, anyio.create_task_group() as group:
        bench = Bench(stand, stage, tmp_path / "control.sock")
        ports = FakePorts()
        ports.net = bench.net
        operations = bench.executions.operations(stand.worker)
        server = ControlServer(ports=ports.as_ports, path=bench.path, operations=operations)
        group.start_soon(server.run)
        await server.listening.wait()
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


async def test_who_does_not_run_executes_nothing(tmp_path):
    async with a_bench(tmp_path) as bench:
        assert await bench.refusal(uid="nobody") is Reason.ACTOR_NOT_FOUND
        assert await bench.refusal(container="three") is Reason.INVALID_REQUEST
        await bench.stand.submit(generation=2, spec__desiredState="Suspended")
        await bench.stand.until("Suspended")
        assert await bench.refusal() is Reason.OPERATION_IN_PROGRESS


async def test_a_shutdown_ends_those_that_run_before_it_goes_on_and_lets_none_begin(tmp_path):
    async with a_bench(tmp_path) as bench, bench.executing():
        with anyio.fail_after(BOUND_S):
            await bench.executions.end(bench.stand.worker.shutdown)
        assert bench.stage.executions == 0
        assert await bench.refusal() is Reason.OPERATION_IN_PROGRESS
        bench.stand.worker.shutdown.ask()
        assert await bench.refusal() is Reason.WORKER_DRAINING
