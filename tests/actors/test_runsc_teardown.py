"""The teardown against a scripted world: what it waits for, in which order, and when it gives up."""

import errno
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports import Exit, ProcessIdentity
from actors.runsc.teardown import Leftover, end_activation, find_leftovers
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.doubles import Double
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.actors.scripted_processes import ScriptedProcesses

pytestmark = pytest.mark.anyio

ACTIVATION = Path("/s/a1")
OTHER = Path("/s/a2")
ROOT = "--root=/s/a1/runsc"


def identity(pid):
    return ProcessIdentity(pid=pid, start_ticks=pid * 10)


class OwnedChild(Double):  # type: ignore[misc]
    """A process that dies of SIGKILL, or never."""

    def __init__(self, *, dies=True):
        self.identity, self.signals, self.dies = identity(1), [], dies

    def signal(self, signum):
        self.signals.append(signum)

    async def wait(self):
        if not self.dies:
            await anyio.sleep_forever()
        return Exit(code=-9)


def world(*running):
    content = {Path("/s"): DIRECTORY, ACTIVATION: DIRECTORY, ACTIVATION / "sandbox.json": b"{}", OTHER: DIRECTORY}
    files = MemoryFiles(content)
    return ScriptedProcesses(running=dict(running)), files


async def test_our_handles_are_killed_first_and_then_whatever_carries_the_root():
    sandbox, gofer = OwnedChild(), OwnedChild()
    processes, files = world((identity(5), ["runsc", ROOT]), (identity(6), ["runsc", "--root=/s/a2/runsc"]))
    await end_activation(processes, files, ACTIVATION, owned=(sandbox, gofer))
    assert sandbox.signals == gofer.signals == [signal.SIGKILL]
    assert processes.killed == [identity(5)]
    assert set(files.content) == {Path("/s"), OTHER}


async def test_ending_what_has_ended_does_nothing():
    processes, files = world()
    await end_activation(processes, files, ACTIVATION)
    await end_activation(processes, files, ACTIVATION)
    assert processes.killed == []


async def test_without_handles_one_look_is_not_enough():
    processes, files = world()
    hidden = ScriptedProcesses.find

    async def find(self, *, argument):
        found = await hidden(self, argument=argument)
        if self.scans == 1:  # it was just being replaced by exec, and shows itself now
            self.running[identity(8)] = [ROOT]
        return found

    processes.find = find.__get__(processes)
    await end_activation(processes, files, ACTIVATION)
    assert processes.killed == [identity(8)]


@pytest.mark.parametrize("owned", [(), (OwnedChild(dies=False),)])
async def test_nothing_is_removed_under_a_process_that_does_not_end(owned):
    processes, files = world((identity(5), [ROOT]))
    processes.unkillable.add(identity(5))
    with pytest.raises(ProblemError) as failed:
        await end_activation(processes, files, ACTIVATION, owned=owned, deadline_s=0.05)
    problem = failed.value.problem
    assert (problem.step, problem.reason) == (Step.TEARDOWN, Reason.STEP_DEADLINE_EXCEEDED)
    assert ACTIVATION / "sandbox.json" in files.content


async def test_processes_that_keep_coming_back_are_given_up():
    processes, files = world((identity(5), [ROOT]))

    async def kill_and_wait(identity, *, deadline_s):
        processes.killed.append(identity)

    processes.kill_and_wait = kill_and_wait
    with pytest.raises(ProblemError) as failed:
        await end_activation(processes, files, ACTIVATION)
    assert failed.value.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
    assert len(processes.killed) < 20


async def test_a_directory_that_cannot_be_removed_is_named():
    processes, files = world()
    files.fail("remove_tree", ACTIVATION, errno.EROFS)
    with pytest.raises(ProblemError) as failed:
        await end_activation(processes, files, ACTIVATION)
    assert (failed.value.problem.reason, failed.value.problem.subject) == (Reason.STATE_UNWRITABLE, "a1")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_processes_that_cannot_be_looked_at_or_killed_are_the_reason_and_nothing_is_removed(number):
    async def refuse(*_arguments, **_more):
        raise OSError(number, "cannot")

    for port in ("find", "kill_and_wait"):
        processes, files = world((identity(5), [ROOT]))
        setattr(processes, port, refuse)
        with pytest.raises(ProblemError) as failed:
            await end_activation(processes, files, ACTIVATION)
        problem = failed.value.problem
        assert (problem.reason, problem.subject) == (Reason.PROCESSES_UNREADABLE, "a1")
        assert ACTIVATION / "sandbox.json" in files.content
    processes, files = world()
    processes.find_arguments = refuse
    with pytest.raises(ProblemError) as failed:
        await find_leftovers(processes, files, Path("/s"))
    assert failed.value.problem.reason is Reason.PROCESSES_UNREADABLE


async def test_leftovers_are_found_by_process_and_by_directory_and_foreign_roots_are_not_ours():
    processes, files = world(
        (identity(5), ["runsc-sandbox", ROOT]),
        (identity(6), ["runsc-gofer", ROOT]),
        (identity(7), ["runsc", "--root=/s/gone/runsc"]),
        (identity(8), ["runsc", "--root=/s/../etc/runsc"]),
        (identity(9), ["runsc", "--root=/s/a1"]),
        (identity(10), ["runsc", "--root=/elsewhere/a1/runsc"]),
        (identity(11), ["runsc", "--root=/s/a1/runsc/deeper"]),
    )
    assert await find_leftovers(processes, files, Path("/s")) == (
        Leftover(activation="a1", processes=(identity(5), identity(6))),
        Leftover(activation="a2", processes=()),
        Leftover(activation="gone", processes=(identity(7),)),
    )
    assert await find_leftovers(ScriptedProcesses(), MemoryFiles(), Path("/s")) == ()


@pytest.mark.parametrize("stays", [False, True])
async def test_what_runsc_has_mounted_in_its_root_is_unmounted_and_nothing_is_removed_through_it(stays):
    files: Any = MemoryFiles({ACTIVATION: DIRECTORY})
    processes, unmounted = ScriptedProcesses(), []
    files.fail("remove_tree", ACTIVATION, errno.EBUSY)

    async def unmount_below(path):
        unmounted.append(path)
        if not stays:
            files.failures.clear()

    files.unmount_below = unmount_below
    if stays:
        with pytest.raises(ProblemError) as failed:
            await end_activation(processes, files, ACTIVATION)
        assert failed.value.problem.reason is Reason.STATE_UNWRITABLE
    else:
        await end_activation(processes, files, ACTIVATION)
        assert ACTIVATION not in files.content
    assert unmounted == [ACTIVATION / "runsc"]
