"""The keeper of the CDI spec: begun at boot, told of late mounts, and in front of a run that hangs (case 013)."""

import errno
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports import DeadlineExceededError, ProcessIdentity
from sim.world import scenery
from sim.world.gpus import Toolkit
from sim.world.nvml import Symbol, Trouble
from statemachine.problem import Step
from statemachine.reasons import Reason
from supervisor.spec_keeper import WATCH_S
from tests.gpu.pods import CDI, DRIVER, Pod
from tests.supervisor.keeping import ask, keeping, until

pytestmark = pytest.mark.anyio

TOOLKIT = Path("/usr/local/nvidia/toolkit")
HANGS = ProcessIdentity(pid=77, start_ticks=5)
OTHERS = ProcessIdentity(pid=78, start_ticks=5)
FIRST = CDI / ".new-0000000000000001/nvidia.json"


# ---- begun early, noticed late


async def test_started_at_boot_it_is_there_for_the_first_who_asks():
    pod = Pod()
    async with keeping(pod) as keeper:
        keeper.start(pod.inventory, DRIVER)
        await until(pod.specs)
        await anyio.wait_all_tasks_blocked()
        assert (await ask(keeper, pod)).spec
    assert len(pod.processes.argvs) == 1


async def test_a_toolkit_that_comes_late_is_noticed_before_anybody_asks_again():
    pod = Pod(toolkit=Toolkit(is_mounted=False))
    async with keeping(pod) as keeper:
        problem = await ask(keeper, pod)
        assert problem.reason is Reason.TOOLKIT_NOT_FOUND
        await until(lambda: TOOLKIT in pod.watch.within_s)
        pod.gpus.mount_toolkit()
        pod.watch.tell(TOOLKIT, "nvidia-ctk.real")
        await until(lambda: any(name.endswith("nvidia.json") for name in pod.specs()))
        await anyio.wait_all_tasks_blocked()
        pod.processes.argvs.clear()
        assert (await ask(keeper, pod)).spec
        assert not pod.processes.argvs


async def test_a_change_that_changes_nothing_runs_nothing():
    pod = Pod()
    async with keeping(pod) as keeper:
        await ask(keeper, pod)
        await until(lambda: Path("/dev") in pod.watch.within_s)
        pod.files.looks.clear()
        pod.watch.tell(Path("/dev"), "shm")
        await until(lambda: pod.files.looks)
        await anyio.wait_all_tasks_blocked()
    assert len(pod.processes.argvs) == 1


async def test_a_change_while_a_spec_is_made_is_looked_at_after_it():
    pod = Pod(toolkit=Toolkit(is_mounted=False))
    held = anyio.Event()
    looked: list[Any] = []

    class Slow:
        def __init__(self):
            self._source = pod.source()

        async def watched(self):
            return await self._source.watched()

        async def make(self, inventory, driver, last):
            looked.append(last)
            if len(looked) == 1:
                await held.wait()
            return await self._source.make(inventory, driver, last)

    async with keeping(pod, source=Slow()) as keeper, anyio.create_task_group() as askers:
        askers.start_soon(ask, keeper, pod)
        await until(lambda: looked and TOOLKIT in pod.watch.within_s)
        await anyio.wait_all_tasks_blocked()
        pod.watch.tell(TOOLKIT, "nvidia-ctk")
        await anyio.wait_all_tasks_blocked()
        held.set()
        await until(lambda: len(looked) == 2)
        assert keeper.stuck == ()


async def test_watching_is_what_an_idle_worker_can_afford():
    pod = Pod()
    async with keeping(pod) as keeper:
        await ask(keeper, pod)
        await until(lambda: len(pod.watch.within_s) == 4)
    assert set(pod.watch.within_s.values()) == {WATCH_S}


async def test_a_directory_that_cannot_be_watched_is_no_end_of_the_keeper():
    pod = Pod()

    def refuse(directory, *, within_s):
        raise OSError(errno.EMFILE, "Too many open files")

    pod.watch.changes = refuse
    async with keeping(pod) as keeper:
        assert (await ask(keeper, pod)).spec


# ---- what hangs (case 013)


async def test_a_run_that_hangs_is_a_reason_and_the_next_one_is_begun_when_it_could_be_killed():
    pod = Pod()
    fault = pod.gpus.spoil(Symbol.COUNT, Trouble.HANG)
    async with keeping(pod) as keeper:
        problem = await ask(keeper, pod)
        assert (problem.step, problem.reason) == (Step.GENERATE, Reason.STEP_DEADLINE_EXCEEDED)
        assert problem.subject == f"{TOOLKIT}/nvidia-ctk.real"
        assert keeper.stuck == ()
        pod.gpus.heal(fault)
        assert (await ask(keeper, pod)).spec


async def test_case_013_one_that_cannot_be_killed_is_remembered_and_no_second_one_begun_until_it_is_gone():
    pod = Pod()
    fault = pod.gpus.spoil(Symbol.COUNT, Trouble.HANG)
    program = str(pod.gpus.toolkit.program)
    pod.processes.running[HANGS] = (program, "cdi", "generate", f"--output={FIRST}")
    pod.processes.running[OTHERS] = (program, "cdi", "generate", "--output=/var/run/cdi/nvidia.yaml")
    async with keeping(pod) as keeper:
        assert (await ask(keeper, pod)).reason is Reason.STEP_DEADLINE_EXCEEDED
        (stuck,) = keeper.stuck
        assert (stuck.identity, stuck.program, stuck.since_s) == (HANGS, program, pod.wall.time_s)
        pod.gpus.heal(fault)
        for _ in range(3):
            problem = await ask(keeper, pod)
            assert (problem.reason, problem.subject) == (Reason.GENERATE_FAILED, program)
            assert "process 77" in problem.message
            assert "1970-01-12T13:46:50.000Z" in problem.message
        assert len(pod.processes.argvs) == 1
        del pod.processes.running[HANGS]
        assert (await ask(keeper, pod)).spec
        assert keeper.stuck == ()


async def test_a_grandchild_with_another_name_is_known_by_what_it_writes():
    pod = Pod()
    pod.processes.ends = DeadlineExceededError()
    pod.processes.running[HANGS] = ("/bin/busybox", f"--output={FIRST}")
    async with keeping(pod) as keeper:
        await ask(keeper, pod)
        assert [stuck.identity for stuck in keeper.stuck] == [HANGS]


async def test_what_an_earlier_life_left_in_the_making_is_ended_and_removed():
    pod = Pod()
    scenery.put_file(pod.disk, CDI / ".new-old/nvidia.json", b"{")
    argument = f"--output={CDI}/.new-old/nvidia.json"
    pod.processes.running = {HANGS: ("/toolkit/nvidia-ctk", argument)}
    async with keeping(pod) as keeper:
        assert (await ask(keeper, pod)).spec
    assert not pod.processes.running
    assert not [name for name in pod.specs() if ".new" in name]


async def test_what_an_earlier_life_left_and_cannot_be_killed_stands_in_the_way():
    pod = Pod()
    scenery.put_directory(pod.disk, CDI / ".new-old")
    pod.processes.running = {HANGS: ("/toolkit/nvidia-ctk", f"--output={CDI}/.new-old/nvidia.json")}
    pod.processes.unkillable = {HANGS}
    async with keeping(pod) as keeper:
        assert (await ask(keeper, pod)).reason is Reason.GENERATE_FAILED
    assert not pod.processes.argvs
