"""The frame of a worker's life: asked to end while it begins, and what becomes of its sandboxes when it ends badly."""

import signal
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from statemachine.actor import OnDrain
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor import leaving, recovering, running
from supervisor.draining import Present
from supervisor.host.net import HostNet
from supervisor.inbox import SignalInbox
from supervisor.running import run_worker
from supervisor.settings import Settings
from tests.actors.memory_files import DIRECTORY
from tests.fakes.ports import FakePorts
from tests.supervisor.lives import settled
from tests.supervisor.stands import STATE

pytestmark = pytest.mark.anyio


class FakeSignals:
    def __init__(self):
        self.inbox = SignalInbox()

    @asynccontextmanager
    async def receive(self, *_signums):
        yield self.inbox


class FakeLock:
    is_held = True

    def close(self):
        self.is_held = False


class Bench(FakePorts):
    """A worker's ports, on which nothing runs, and three actors on disk."""

    def __init__(self, run_dir):
        super().__init__()
        self.net, self.signals, self.lock = HostNet(), FakeSignals(), FakeLock()
        self.settings = Settings(
            state_dir=STATE.root,
            run_dir=run_dir,
            assignments=None,
            runsc=Path("/runsc"),
            max_actors=9,
            on_drain=OnDrain.STOP,
        )
        self.files.lock = self.take_lock
        for uid in ("a1", "a2", "a3"):
            self.files.content[STATE.actors / uid] = DIRECTORY

    async def take_lock(self, _path):
        return self.lock


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """With a runtime that nobody looks at."""

    async def look_at_runtime(_ports, _settings):
        return type("Runtime", (), {"path": "/runsc", "version": type("Version", (), {"text": "1"})})

    monkeypatch.setattr(running, "look_at_runtime", look_at_runtime)
    return Bench(tmp_path)


async def ran(bench):
    """Run it to its end; returns the first cause of it, None when it has just left."""
    with anyio.fail_after(60):
        try:
            await run_worker(bench, bench.settings)
        except BaseException as error:  # noqa: BLE001  a test of how it ends
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            return error
    return None


@pytest.mark.parametrize(("at", "recovered"), [("a1", ["a1"]), ("a2", ["a1", "a2"]), ("a3", ["a1", "a2", "a3"])])
async def test_who_is_asked_to_end_while_it_recovers_recovers_no_other_actor_and_leaves(
    bench, monkeypatch, logs, at, recovered
):
    begun = []

    async def recover_actor(_ports, _state_dir, _worker, uid, _survivors, *, left):
        begun.append(uid)
        if begun[-1] == at:
            bench.signals.inbox.put(signal.SIGHUP)  # which is no reason to end
            bench.signals.inbox.put(signal.SIGTERM)
        await settled()

    monkeypatch.setattr(recovering, "_recover_actor", recover_actor)
    assert await ran(bench) is None
    assert begun == recovered
    # None of them has a life here: as when only their snapshots are left.
    (left,) = [entry for entry in logs if entry["event"] == "left"]
    assert left["not_recovered"] == ([] if at == "a3" else ["a1", "a2", "a3"])
    told = [entry["event"] for entry in logs if entry["event"] in {"signal", "draining", "left"}]
    assert sorted(told) == ["draining", "left", "signal"]  # who answers SIGHUP may have its turn after the drain began
    assert not bench.lock.is_held


async def test_a_signal_that_came_before_anything_else_ends_it_before_the_first_actor(bench, monkeypatch):
    begun = []

    async def recover_actor(_ports, _state_dir, _worker, uid, _survivors, *, left):
        begun.append(uid)

    monkeypatch.setattr(recovering, "_recover_actor", recover_actor)
    bench.signals.inbox.put(signal.SIGTERM)
    assert await ran(bench) is None
    assert begun == []


async def test_who_is_there_is_noted_at_the_signal_itself_and_again_at_the_drain(bench, monkeypatch):
    noted = []

    class Noting(Present):
        def note(self):
            noted.append(self._worker.shutdown.is_asked)
            super().note()

    async def work(_ports, worker, *_, **__):
        bench.signals.inbox.put(signal.SIGTERM)
        await worker.shutdown.asked.wait()

    monkeypatch.setattr(running, "Present", Noting)
    monkeypatch.setattr(running, "_work", work)
    assert await ran(bench) is None
    assert noted == [False, True]


def ending_leftovers(monkeypatch, second):
    """At the end this is awaited; what is there at the start is found in another way."""
    calls = []

    async def end_leftovers(_ports, _state_dir):
        calls.append(1)
        await second()

    monkeypatch.setattr(leaving, "end_leftovers", end_leftovers)
    return calls


async def unreadable():
    problem = Problem(step=Step.TEARDOWN, reason=Reason.PROCESSES_UNREADABLE, subject="s", message="no descriptors")
    raise ProblemError(problem)


async def faulty():
    raise KeyError("a fault of ours")


ENDS_BADLY = {
    "it fails": (unreadable, "ProcessesUnreadable"),
    "a fault of ours": (faulty, "Internal"),
    "it takes too long": (anyio.sleep_forever, "StepDeadlineExceeded"),
}


@pytest.mark.parametrize("how", ENDS_BADLY)
@pytest.mark.parametrize("first", [ZeroDivisionError, None])
async def test_leftovers_that_cannot_be_ended_are_told_and_hide_no_earlier_cause(bench, monkeypatch, logs, first, how):
    second, reason = ENDS_BADLY[how]

    async def work(*_, **__):
        if first:
            raise first

    monkeypatch.setattr(running, "_work", work)
    monkeypatch.setattr(leaving, "LEFTOVERS_S", 0.01 if second is anyio.sleep_forever else 60.0)
    calls = ending_leftovers(monkeypatch, second)
    cause = await ran(bench)
    assert len(calls) == 1
    assert [entry["reason"] for entry in logs if entry["log_level"] == "error"] == [reason]
    if first:
        assert isinstance(cause, first)
    else:
        assert reason == (str(cause.problem.reason) if isinstance(cause, ProblemError) else "Internal")


async def test_a_worker_that_is_cancelled_ends_its_leftovers_all_the_same(bench, monkeypatch):
    ended = []

    async def second():
        await settled()
        ended.append(True)

    works = anyio.Event()

    async def work(*_, **__):
        works.set()
        await anyio.sleep_forever()

    ending_leftovers(monkeypatch, second)
    monkeypatch.setattr(running, "_work", work)
    async with anyio.create_task_group() as group:
        group.start_soon(run_worker, bench, bench.settings)
        await works.wait()
        group.cancel_scope.cancel()
    assert ended == [True]
