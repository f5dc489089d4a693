"""Sandboxes that an earlier life of the worker left, or a drain that took too long: all of them are ended."""

import errno
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from actors.ports import DeadlineExceededError, ProcessIdentity
from supervisor import leftovers
from supervisor.cgroups import NO_CGROUPS
from supervisor.leftovers import Unended, end_leftovers, end_until_gone
from tests.actors.scripted_processes import ScriptedProcesses
from tests.fakes.ports import FakePorts
from tests.supervisor.lives import BOUND_S
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
    ports.processes = processes = sandboxes(100)
    find, alive = processes.find, []

    async def counted(*, argument):
        alive.append(len(processes.running))
        return await find(argument=argument)

    processes.find = counted
    await end_leftovers(ports.as_ports, STATE)
    assert len(processes.killed) == 200
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


# ---- tried again


@pytest.fixture
def given_back(monkeypatch):
    """Who has given GPUs back; whoever is tried again is so at once."""
    monkeypatch.setattr(leftovers, "AGAIN_S", 0.0)
    monkeypatch.setattr(leftovers, "AGAIN_MAX_S", 0.0)
    return []


async def ended(ports, given_back):
    """Try until three activations of one actor are gone."""
    gpus = SimpleNamespace(give_back=given_back.append)
    worker: Any = SimpleNamespace(state_dir=STATE, cgroups=NO_CGROUPS, gpus=gpus)
    left = [Unended(activation=f"s{number}", holder="s0") for number in range(3)]
    with anyio.fail_after(BOUND_S):
        await end_until_gone(ports.as_ports, worker, left)


async def test_one_that_hangs_keeps_no_other_one_from_its_end(given_back, monkeypatch):
    monkeypatch.setattr(leftovers, "TRY_S", 0.05)
    ports, there = FakePorts(), {"s0", "s1", "s2"}

    async def remove_tree(path):
        if path.name == "s0" and len(there) > 1:
            await anyio.sleep_forever()
        assert given_back == []
        there.discard(path.name)

    ports.files.remove_tree = remove_tree
    await ended(ports, given_back)
    assert (there, given_back) == (set(), ["s0"])


async def test_a_fault_of_ours_is_told_and_tried_again(given_back, logs):
    ports, faults = FakePorts(), [ZeroDivisionError()]

    async def remove_tree(_path):
        if faults:
            raise faults.pop()

    ports.files.remove_tree = remove_tree
    await ended(ports, given_back)
    assert [entry["activation"] for entry in logs if entry["event"] == "fault"] == ["s0"]
    assert given_back == ["s0"]
