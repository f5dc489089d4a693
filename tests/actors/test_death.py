"""Why a sandbox died: its status, its last words, and whether the kernel ended it for its memory."""

import errno
from typing import Any

import anyio
import pytest

from actors.ports import CgroupUsage, Delegation, Exit
from actors.runsc.driver import Runsc, Target
from actors.runsc.flags import GlobalFlags
from actors.runsc.log import LOG_BYTES_MAX
from actors.runsc.sandbox import SANDBOX_LOG, Sandbox
from actors.steps.death import death_of, how_it_ended
from statemachine.reasons import Reason
from tests.actors.memory_files import MemoryFiles
from tests.actors.step_stage import shaped
from tests.fakes.sandbox import STATE

pytestmark = pytest.mark.anyio

ACTIVATION = STATE.activation("a1")


@pytest.mark.parametrize(
    ("code", "killed", "says"),
    [
        (-9, 1, "killed by the kernel for its memory (oom_kill 1): killed by signal 9 (SIGKILL)"),
        (-9, 0, "killed by signal 9 (SIGKILL), not by the kernel for its memory (oom_kill 0)"),
        (-9, None, "killed by signal 9 (SIGKILL); whether by the kernel for its memory is unknown"),
        (137, 2, "killed by the kernel for its memory (oom_kill 2): exit code 137 (SIGKILL)"),
        (-11, None, "killed by signal 11 (SIGSEGV)"),
        (-11, 1, "killed by signal 11 (SIGSEGV); the kernel killed processes of it for its memory (oom_kill 1)"),
        (-250, None, "killed by signal 250"),
        (143, 0, "exit code 143 (SIGTERM)"),
        (2, None, "exit code 2"),
        (0, None, "exit code 0"),
        (255, None, "exit code 255"),
        (None, None, "its status was lost"),
        (None, 3, "its status was lost; the kernel killed processes of it for its memory (oom_kill 3)"),
    ],
)
def test_the_end_of_a_sandbox_is_told_in_words(code, killed, says):
    assert how_it_ended(Exit(code=code), killed) == says


class Counting:
    """Cgroups that count, or cannot."""

    def __init__(self, usage):
        self.answer, self.asked = usage, []

    async def usage(self, name):
        self.asked.append(name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("usage", "says"),
    [
        (CgroupUsage(oom_kills=1), "killed by the kernel for its memory (oom_kill 1)"),
        (CgroupUsage(), "is unknown"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "is unknown"),
        (OSError(errno.EIO, "Input/output error"), "is unknown"),
    ],
)
async def test_the_kernels_count_is_read_of_the_activations_own_cgroup_and_never_guessed(usage, says):
    stage, sandbox, _ = shaped()
    counting = Counting(usage)
    stage.ports.cgroups = counting
    stage.cgroups = Delegation(actors=STATE.root)
    problem = await death_of(stage, sandbox, Exit(code=-9))
    assert says in problem.message
    assert counting.asked == [f"{stage.assignment.uid}.{stage.activation.name}"]


async def test_a_worker_without_cgroups_does_not_know_who_killed_it():
    stage, sandbox, _ = shaped()
    sandbox.log = "panic: something"
    problem = await death_of(stage, sandbox, Exit(code=-9))
    assert (problem.reason, problem.subject) == (Reason.SANDBOX_DIED, stage.assignment.uid)
    assert "is unknown" in problem.message
    assert problem.detail == "panic: something"


async def test_a_disk_that_hangs_holds_up_no_death(monkeypatch):
    monkeypatch.setattr("actors.steps.death.ASK_S", 0.01)
    stage, sandbox, _ = shaped()
    sandbox.last_log = anyio.sleep_forever
    with anyio.fail_after(30):
        problem = await death_of(stage, sandbox, Exit(code=2))
    assert ("exit code 2" in problem.message, problem.detail) == (True, "")


# ---- its last words


async def last_log(data, *, secret="hunter2-hunter2"):
    files = MemoryFiles({} if data is None else {ACTIVATION / SANDBOX_LOG: data})
    made: Any = {"path": STATE.root, "flags": GlobalFlags(), "processes": None, "files": files}
    runsc = Runsc(**made, root=ACTIVATION / "runsc")
    targets = {"main": Target.of("main", "c1", env=(f"TOKEN={secret}", "SHORT=on"))}
    nobody: Any = None
    return await Sandbox(runsc=runsc, record=nobody, process=nobody, gofers={}, targets=targets).last_log()


async def test_a_panic_is_told_by_its_reason_and_without_its_goroutines():
    panic = b"W0101 warning\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n"
    assert await last_log(panic) == "W0101 warning\npanic: runtime error: index out of range"


async def test_secrets_of_any_container_are_removed_from_what_it_wrote():
    assert await last_log(b"env TOKEN=hunter2-hunter2 on\n") == "env TOKEN=*** on"


@pytest.mark.parametrize("data", [None, b""])
async def test_a_sandbox_that_wrote_nothing_has_no_last_words(data):
    assert await last_log(data) == ""


async def test_of_a_long_log_the_end_is_told():
    told = await last_log(b"noise\n" * LOG_BYTES_MAX + b"the last line\n")
    assert told.splitlines()[-1] == "the last line"
    assert len(told.splitlines()) == 20
