"""A sandbox that outlived its supervisor, owned again: what is believed, what is ended, and what is refused."""

import errno
import json
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from actors.ports import DeadlineExceededError, Exit, Finished, ProcessIdentity
from actors.runsc import reclaiming
from actors.runsc.belongings import Belongings
from actors.runsc.driver import Runsc, Target
from actors.runsc.flags import GlobalFlags
from actors.runsc.reclaiming import Survivor, reclaim_sandbox, survivor_of
from actors.runsc.record import write_record
from actors.runsc.teardown import Leftover
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.actors.records import a_record
from tests.actors.scripted_processes import ScriptedProcesses

pytestmark = pytest.mark.anyio

ACTIVATION = Path("/s/a1")
SANDBOX, PAUSE, WEB, COMMAND = (ProcessIdentity(pid=pid, start_ticks=7) for pid in (10, 11, 12, 99))
RECORD = a_record(
    boot_id="b",
    container_ids={"pause": "c0", "web": "c1", "once": "c2"},
    sandbox=SANDBOX,
    gofers={"pause": PAUSE, "web": WEB},
    belongings=Belongings(runtime_sha256="00", doubted=("web",)),
)
TARGETS = {name: Target.of(name, each) for name, each in RECORD.container_ids.items()}


@attrs.define(eq=False)
class Held:
    """A process that was reclaimed."""

    identity: ProcessIdentity
    waited_for: anyio.Event = attrs.field(factory=anyio.Event)
    ended: anyio.Event = attrs.field(factory=anyio.Event)
    is_closed: bool = False

    async def wait(self):
        self.waited_for.set()
        await self.ended.wait()
        return Exit(code=None)

    def close(self):
        self.is_closed = True


@attrs.define(slots=False)
class Reclaimable(ScriptedProcesses):
    """Processes of which some cannot be owned (`refused`)."""

    refused: dict[Any, Exception] = attrs.field(factory=dict)
    handles: dict[Any, Held] = attrs.field(factory=dict)
    held: list[Any] = attrs.field(factory=list)

    def handle(self, identity):
        return self.handles.setdefault(identity, Held(identity))

    async def reclaim(self, identity):
        await anyio.lowlevel.checkpoint()
        if identity in self.refused:
            raise self.refused[identity]
        if identity not in self.running:
            raise ProcessLookupError
        self.held.append(self.handle(identity))
        return self.held[-1]

    @property
    def open(self):
        return {each.identity for each in self.held if not each.is_closed}


def listed(**states):
    """An answer to `list`: by runsc's id."""
    rows = [{"id": each, "status": status, "pid": 10} for each, status in states.items()]
    return lambda verb, _argv: Finished(exit=Exit(code=0), stdout=json.dumps(rows).encode()) if verb == "list" else None


def a_runsc(answer, *running):
    files = MemoryFiles({ACTIVATION: DIRECTORY})
    processes = Reclaimable(answer)
    processes.running.update(dict.fromkeys(running, ()))
    runsc = Runsc(
        path=Path("/r/runsc"), flags=GlobalFlags(), processes=processes, files=files, root=ACTIVATION / "runsc"
    )
    return runsc, processes


async def reclaimed(runsc, *processes):
    return await reclaim_sandbox(runsc, Survivor(record=RECORD, processes=processes), TARGETS)


async def problem_of(act):
    with pytest.raises(ProblemError) as failed:
        await act
    return failed.value.problem


ALL = listed(c0="running", c1="running", c2="stopped")


async def test_what_lives_is_owned_and_what_runsc_says_of_each_container_is_known():
    runsc, processes = a_runsc(ALL, SANDBOX, PAUSE, WEB)
    found = await reclaimed(runsc, SANDBOX, PAUSE, WEB)
    assert {name: str(state.status) for name, state in found.states.items()} == {
        "pause": "running", "web": "running", "once": "stopped",
    }  # fmt: skip
    assert set(found.sandbox.gofers) == {"pause", "web"}
    assert processes.open == {SANDBOX, PAUSE, WEB}
    with anyio.fail_after(60):
        await found.sandbox.ended("once")  # at once: its file server is gone
    found.sandbox.close()
    assert processes.open == set()


async def test_a_container_that_runsc_does_not_have_any_more_is_none_of_the_sandbox():
    runsc, _ = a_runsc(listed(c0="paused", c1="running"), SANDBOX, PAUSE, WEB)
    found = await reclaimed(runsc, SANDBOX, PAUSE, WEB)
    assert found.sandbox.containers == ("web",)


async def test_a_command_of_the_life_before_is_ended_when_it_does_not_end_by_itself(monkeypatch):
    monkeypatch.setattr(reclaiming, "COMMANDS_S", 0.01)
    runsc, processes = a_runsc(ALL, SANDBOX, PAUSE, WEB, COMMAND)
    await reclaimed(runsc, SANDBOX, PAUSE, WEB, COMMAND)
    assert processes.killed == [COMMAND]
    assert processes.open == {SANDBOX, PAUSE, WEB}


async def test_a_command_of_the_life_before_may_end_by_itself():
    runsc, processes = a_runsc(ALL, SANDBOX, PAUSE, WEB, COMMAND)
    async with anyio.create_task_group() as group:
        group.start_soon(reclaimed, runsc, SANDBOX, PAUSE, WEB, COMMAND)
        with anyio.fail_after(60):
            await processes.handle(COMMAND).waited_for.wait()
        await anyio.wait_all_tasks_blocked()
        assert processes.calls == []  # nothing is asked before it is over
        processes.handle(COMMAND).ended.set()
    assert processes.killed == []


async def test_a_command_that_does_not_even_die_is_a_reason(monkeypatch):
    monkeypatch.setattr(reclaiming, "COMMANDS_S", 0.01)
    runsc, processes = a_runsc(ALL, SANDBOX, PAUSE, WEB, COMMAND)

    async def hangs(_identity, *, deadline_s):
        raise DeadlineExceededError

    processes.kill_and_wait = hangs
    problem = await problem_of(reclaimed(runsc, SANDBOX, PAUSE, WEB, COMMAND))
    assert (problem.reason, processes.open) == (Reason.PROCESSES_UNREADABLE, set())


async def test_a_sandbox_that_ends_while_it_is_looked_at_is_dead():
    runsc, _ = a_runsc(ALL)
    assert (await problem_of(reclaimed(runsc, SANDBOX))).reason is Reason.SANDBOX_DIED


@pytest.mark.parametrize("who", [SANDBOX, PAUSE, WEB])
async def test_a_process_that_cannot_be_held_is_a_reason_and_nothing_stays_owned(who):
    runsc, processes = a_runsc(ALL, SANDBOX, PAUSE, WEB)
    processes.refused[who] = OSError(errno.EMFILE, "Too many open files")
    problem = await problem_of(reclaimed(runsc, SANDBOX, PAUSE, WEB))
    assert problem.reason is Reason.PROCESSES_UNREADABLE
    assert "Too many open files" in problem.message
    assert processes.open == set()


async def test_a_runsc_that_does_not_answer_is_a_reason_and_nothing_stays_owned():
    runsc, processes = a_runsc(lambda _verb, _argv: Finished(exit=Exit(code=128)), SANDBOX, PAUSE, WEB)
    await problem_of(reclaimed(runsc, SANDBOX, PAUSE, WEB))
    assert processes.open == set()


@pytest.mark.parametrize(
    ("record", "processes", "boot_id", "is_one"),
    [
        (RECORD, (SANDBOX, PAUSE), "b", True),
        (RECORD, (SANDBOX,), "another", False),
        (RECORD, (PAUSE, WEB), "b", False),
        (RECORD, (ProcessIdentity(pid=10, start_ticks=8),), "b", False),
        (attrs.evolve(RECORD, activation="a2"), (SANDBOX,), "b", False),
        (attrs.evolve(RECORD, sandbox=None), (SANDBOX,), "b", False),
        (None, (SANDBOX,), "b", False),
    ],
    ids=["alive", "another boot", "dead", "another of that pid", "a copy", "not yet made", "no record"],
)
async def test_what_counts_as_alive(record, processes, boot_id, is_one):
    files = MemoryFiles({ACTIVATION: DIRECTORY})
    if record is not None:
        await write_record(files, ACTIVATION, record)
    leftover = Leftover(activation="a1", processes=processes)
    found = await survivor_of(files, ACTIVATION, leftover, boot_id=boot_id)
    assert (found is not None) is is_one
    if found is not None:
        assert (found.record, found.processes) == (record, processes)


async def test_a_doubt_outlives_the_supervisor():
    runsc, _ = a_runsc(ALL, SANDBOX, PAUSE, WEB)
    found = await reclaimed(runsc, SANDBOX, PAUSE, WEB)
    runsc.processes.answer = lambda _verb, _argv: Finished(exit=Exit(code=None))
    for name in ("web", "once"):
        with pytest.raises(ProblemError):
            await found.sandbox.execute(name, ["x"], deadline_s=1)
    document = json.loads(runsc.files.content[ACTIVATION / "sandbox.json"])
    assert document["belongings"]["doubted"] == ["once", "web"]


async def test_what_commands_of_the_life_before_have_left_does_not_pass_for_ours():
    runsc, _ = a_runsc(ALL, SANDBOX, PAUSE, WEB)
    for name in ("000002-exec.pid", "000003-state.log"):
        runsc.files.content[ACTIVATION / name] = b"77"
    await reclaimed(runsc, SANDBOX, PAUSE, WEB)
    assert set(runsc.files.content) == {ACTIVATION}
