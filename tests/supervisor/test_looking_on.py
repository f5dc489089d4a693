"""Whoever looks on is told of what happens when it happens: changes of the status, and what containers write."""

import base64
from contextlib import asynccontextmanager

import anyio
import pytest

from actors.layout import StateDir
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.host.files import HostFiles
from supervisor.host.log_files import open_log_files
from supervisor.log_hearing import LogWorld
from supervisor.looking_on import LookingOn
from supervisor.observing import NOBODY
from tests.fakes.performer import a_problem
from tests.fakes.ports import FakePorts
from tests.supervisor.log_benches import BOUND_S, FakeOutput
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio


class Bench:
    """A worker on fakes, except for the logs of its actors, which are real files."""

    def __init__(self, stand, looking_on, state, output):
        self.stand, self.state, self.output = stand, state, output
        self.looking_on = looking_on

    async def ask(self, op, **arguments):
        with anyio.fail_after(BOUND_S):
            return await self.looking_on.operations[op](arguments)

    async def written(self, data):
        path = self.state.actor("a1").log("main")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    async def read(self, **arguments):
        answer = await self.ask("logs", uid="a1", container="main", **arguments)
        return {**answer, "data": base64.b64decode(answer["data"])}


@asynccontextmanager
async def a_bench(root, *, is_kept=True):
    state, output = StateDir(root), FakeOutput()
    (state.actor("a1").logs).mkdir(parents=True)
    async with (
        a_stand() as stand,
        open_log_files(roots=[root]) as files,
        anyio.create_task_group() as scope,
    ):
        ports = FakePorts()
        ports.files = HostFiles(roots=[root])
        world = LogWorld(files=files, output=output) if is_kept else None
        looking_on = LookingOn(ports.as_ports, state, scope, world)
        stand.worker.observer = looking_on.beside(NOBODY)
        looking_on.look_on(stand.worker)
        yield Bench(stand, looking_on, state, output)
        scope.cancel_scope.cancel()


async def test_a_first_look_is_answered_at_once_and_the_next_one_when_something_has_happened(tmp_path):
    async with a_bench(tmp_path) as bench:
        first = await bench.ask("watch", wait_s=60)
        assert first["status"]["actors"] == []
        answers = []

        async def look():
            answers.append(await bench.ask("watch", wait_s=60, after=first["change"]))

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            await bench.stand.running()
        assert [actor["uid"] for actor in answers[0]["status"]["actors"]] == ["a1"]
        assert answers[0]["change"] > first["change"]


async def test_a_look_ends_when_its_time_is_over_though_nothing_has_happened(tmp_path):
    async with a_bench(tmp_path) as bench:
        first = await bench.ask("watch")
        assert await bench.ask("watch", wait_s=0.001, after=first["change"]) == first


async def test_a_number_of_another_worker_is_answered_at_once(tmp_path):
    async with a_bench(tmp_path) as bench:
        assert (await bench.ask("watch", wait_s=60, after=977))["change"] == 0


async def test_one_actor_can_be_looked_at_and_one_that_is_not_there_is_refused(tmp_path):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ProblemError) as caught:
            await bench.ask("watch", uid="a1")
        assert caught.value.problem.reason is Reason.ACTOR_NOT_FOUND
        await bench.stand.running()
        assert (await bench.ask("watch", uid="a1"))["status"]["state"] == "Running"


async def test_a_refused_request_and_a_trouble_are_changes_too(tmp_path):
    async with a_bench(tmp_path) as bench:
        await bench.stand.running()
        numbers = [(await bench.ask("watch"))["change"]]
        await bench.stand.worker.tell_trouble("a1", a_problem(), 1)
        numbers.append((await bench.ask("watch"))["change"])
        bench.stand.worker.observer.refused(())
        numbers.append((await bench.ask("watch"))["change"])
        assert numbers == sorted(set(numbers))


async def test_whoever_follows_a_log_is_answered_when_something_is_written_and_when_the_actor_is_elsewhere(tmp_path):
    async with a_bench(tmp_path) as bench:
        await bench.stand.running()
        answers = []

        async def follow(offset_bytes):
            answers.append(await bench.read(offset_bytes=offset_bytes, wait_s=60))

        async with anyio.create_task_group() as group:
            group.start_soon(follow, 0)
            await anyio.wait_all_tasks_blocked()
            await bench.written(b"a line\n")
        assert (answers[-1]["data"], answers[-1]["nextOffset_bytes"], answers[-1]["state"]) == (
            b"a line\n",
            7,
            "Running",
        )
        async with anyio.create_task_group() as group:
            group.start_soon(follow, 7)
            await anyio.wait_all_tasks_blocked()
            await bench.stand.submit(generation=2, spec__desiredState="Terminated")
            await bench.stand.until(State.TERMINATED)
        assert answers[-1]["data"] == b""


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_log_that_nobody_waits_for_is_read_at_once(tmp_path, is_kept):
    async with a_bench(tmp_path, is_kept=is_kept) as bench:
        await bench.stand.running()
        assert (await bench.read())["data"] == b""
        await bench.written(b"a line\n")
        assert (await bench.read())["data"] == b"a line\n"
        with pytest.raises(ProblemError) as caught:
            await bench.ask("logs", uid="a1", container="other")
        assert caught.value.problem.reason is Reason.INVALID_REQUEST


async def test_what_an_actor_writes_is_told_from_its_first_transition_on_until_it_is_over(tmp_path):
    async with a_bench(tmp_path) as bench:
        await bench.stand.running()
        await bench.written(b"a line\nno end")
        await bench.stand.submit(generation=2, spec__desiredState="Terminated")
        await bench.stand.until(State.TERMINATED)
        await bench.looking_on.finish()
        assert [line["message"] for line in bench.output.lines] == ["a line", "no end"]
        assert bench.output.lines[0]["labels"]["ate.dev/actor_uid"] == "a1"


async def test_lines_that_nobody_took_in_time_are_told(tmp_path, logs, monkeypatch):
    monkeypatch.setattr("supervisor.looking_on.FINISH_S", 0.001)
    async with a_bench(tmp_path) as bench:
        bench.output.is_open = anyio.Event()
        await bench.stand.running()
        await bench.written(b"a line\n")
        await bench.looking_on.finish()
    assert [entry["left"] for entry in logs if entry["event"] == "untold"] == [["a1"]]


async def test_an_actor_that_is_forgotten_is_forgotten_by_the_logs_too(tmp_path):
    async with a_bench(tmp_path) as bench:
        await bench.stand.terminated()
        await bench.looking_on.finish()
        assert bench.looking_on._keeper.known == ("a1",)
        bench.stand.wall.time_s += 2 * 24 * 3600
        (bench.state.actor("a2").logs).mkdir(parents=True)
        await bench.stand.running("a2")
        assert bench.looking_on._keeper.known == ("a2",)
