"""SIGUSR1: every actor and every task is told, whatever they do, in bounded lines, at every level of the log."""

import signal

import anyio
import pytest

from statemachine import commands as c
from supervisor import asked_by_signal, showing
from supervisor.asked_by_signal import answer_signals
from supervisor.inbox import SignalInbox
from supervisor.reloading import Reloading
from supervisor.showing import show, told_tasks, waits_in
from tests.supervisor.lives import settled
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio


def told(logs, event):
    return [entry for entry in logs if entry["event"] == event]


@pytest.fixture
def ours(monkeypatch):
    """The functions of these tests count as ours."""
    monkeypatch.setattr(showing, "_OURS", ("supervisor.", "tests."))


async def shown(logs):
    """A worker with one actor that runs, and one whose start hangs; and what is told of it."""
    async with a_stand() as stand:
        await stand.running("a1")
        held = []
        stand.prepare["a2"] = lambda performer: held.append(performer.hold(c.CreateSandbox))
        await stand.submit("a2")
        await held[0].begun.wait()
        await show(stand.worker)
        held[0].let_go()
    return logs


async def test_every_actor_is_told_with_its_state_its_step_and_how_long_that_may_take(logs):
    running, starting = told(await shown(logs), "stands")
    assert (running["actor"], running["state"], running["step"], running["deadline_s"]) == ("a1", "Running", None, None)
    assert (starting["actor"], starting["state"], starting["step"]) == ("a2", "Creating", "create")
    assert starting["deadline_s"] > 0
    assert {"since", "generation", "uploading", "gpus"} < set(starting)


async def test_every_task_is_told_below_its_actor_with_the_functions_that_it_waits_in(logs):
    tasks = {entry["task"].rpartition("actor:")[2]: entry["waits_in"] for entry in told(await shown(logs), "waits")}
    assert {"a1", "a1 > watch", "a2", "a2 > step:CreateSandbox"} <= set(tasks)
    modules = [frame.split(":")[0] for frame in tasks["a1"]]
    assert "supervisor.life" in modules
    assert modules[-1] == "supervisor.mailbox"
    assert any("step_runner" in frame for frame in tasks["a2 > step:CreateSandbox"])
    for frames in tasks.values():
        assert 0 < len(frames) <= showing.FRAMES_MAX


async def test_whoever_asks_sees_it_at_every_level_of_the_log(logs):
    assert {entry["log_level"] for entry in await shown(logs) if entry["event"] in {"asked", "stands", "waits"}} == {
        "warning"
    }


async def test_the_first_line_says_how_much_there_is_and_the_last_how_much_is_left_out(logs, monkeypatch):
    monkeypatch.setattr(showing, "LINES_MAX", 2)
    async with a_stand() as stand:
        for number in range(5):
            await stand.running(f"a{number}")
        await show(stand.worker)
    (first,), (last,) = told(logs, "asked"), told(logs, "left_out")
    assert first["actors"] == 5
    assert (len(told(logs, "stands")), len(told(logs, "waits"))) == (2, 2)
    assert last["lines"] == 3 + first["tasks"] - 2


async def test_children_come_after_their_parents_and_the_one_that_asks_is_left_out(ours):
    async def waiting():
        await anyio.sleep_forever()

    async def parent():
        async with anyio.create_task_group() as children:
            children.start_soon(waiting, name="first")
            children.start_soon(waiting, name="second")

    async with anyio.create_task_group() as group:
        group.start_soon(parent, name="parent")
        await settled()
        asking = anyio.get_current_task()
        found = list(told_tasks(anyio.get_running_tasks(), asking.id))
        group.cancel_scope.cancel()
    ends = [each.task.split(" > ")[-2:] for each in found if "parent" in each.task]
    assert [end[-1] for end in ends] == ["parent", "first", "second"]
    assert [end[0] for end in ends[1:]] == ["parent", "parent"]
    assert asking.name not in [each.task for each in found]
    (waits,) = [each.waits_in for each in found if each.task.endswith("second")]
    assert waits[-1].endswith(" waiting")


async def test_a_path_that_is_long_keeps_its_end_and_deep_calls_their_innermost(ours):
    async def innermost():
        await anyio.sleep_forever()

    async def deep(levels):
        await (deep(levels - 1) if levels else innermost())

    async with anyio.create_task_group() as group:
        group.start_soon(deep, 20, name="x" * 300)
        await settled()
        (told_one,) = [each for each in told_tasks(anyio.get_running_tasks(), 0) if "xxx" in each.task]
        group.cancel_scope.cancel()
    assert len(told_one.task) == showing.PATH_CHARACTERS_MAX
    assert told_one.task.startswith("…")
    assert [frame.rpartition(" ")[2] for frame in told_one.waits_in] == [
        *["deep"] * (showing.FRAMES_MAX - 1), "innermost",
    ]  # fmt: skip


@pytest.mark.parametrize("awaitable", [None, object(), iter(())])
def test_what_is_no_coroutine_waits_nowhere(awaitable):
    assert waits_in(awaitable) == ()


async def test_it_is_shown_while_an_actor_hangs_and_a_fault_in_it_is_told(logs, monkeypatch):
    async with a_stand() as stand:
        inbox = SignalInbox()
        async with anyio.create_task_group() as group:
            group.start_soon(answer_signals, inbox, stand.worker, Reloading(stand.files, stand.worker, None))
            inbox.put(signal.SIGUSR1)
            await settled()
            assert len(told(logs, "asked")) == 1

            async def faulty(_worker):
                raise ZeroDivisionError("a fault of ours")

            monkeypatch.setattr(asked_by_signal, "show", faulty)
            inbox.put(signal.SIGUSR1)
            await settled()
            group.cancel_scope.cancel()
    assert [entry["signal"] for entry in told(logs, "fault")] == ["SIGUSR1"]
