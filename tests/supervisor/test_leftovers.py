"""Sandboxes that an earlier life of the worker left, or a drain that took too long: all of them are ended."""

import errno

import pytest

from actors.ports import DeadlineExceededError, ProcessIdentity
from supervisor.recovering import end_leftovers
from tests.actors.scripted_processes import ScriptedProcesses
from tests.fakes.ports import FakePorts
from tests.supervisor.stands import STATE

pytestmark = pytest.mark.anyio


def told(logs):
    return [entry["reason"] for entry in logs if entry["event"] == "unusable"]


def sandboxes(count):
    """Processes of that many activations, a sandbox and a gofer each."""
    processes = ScriptedProcesses()
    for number in range(2 * count):
        root = f"--root={STATE.sandboxes}/s{number // 2}/runsc"
        processes.running[ProcessIdentity(pid=1000 + number, start_ticks=number)] = ["runsc", root]
    return processes


async def test_every_sandbox_is_killed_before_the_first_one_is_cleared_away():
    """To clear one away is to look at every process there is: a shutdown in a hurry must not end before the last."""
    ports = FakePorts()
    ports.processes = processes = sandboxes(300)
    find, alive = processes.find, []

    async def counted(*, argument):
        alive.append(len(processes.running))
        return await find(argument=argument)

    processes.find = counted
    await end_leftovers(ports.as_ports, STATE)
    assert len(processes.killed) == 600
    assert set(alive) == {0}


CANNOT = {
    "StepDeadlineExceeded": DeadlineExceededError("it is still there"),
    "ProcessesUnreadable": OSError(errno.EMFILE, "Too many open files"),
}


@pytest.mark.parametrize("reason", CANNOT)
async def test_a_process_that_cannot_be_killed_is_told_and_keeps_nobody_else_alive(reason, logs, monkeypatch):
    ports = FakePorts()
    ports.processes = processes = sandboxes(3)
    kill_and_wait = processes.kill_and_wait

    async def hung(identity, *, deadline_s):
        if identity.pid == 1002:
            raise CANNOT[reason]
        await kill_and_wait(identity, deadline_s=deadline_s)

    monkeypatch.setattr(processes, "kill_and_wait", hung)
    await end_leftovers(ports.as_ports, STATE)
    assert [identity.pid for identity in processes.running] == [1002]
    assert told(logs) == [reason]
