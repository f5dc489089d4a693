"""The keeper of the CDI spec: one run for all who ask, kept while it is right, ended with the worker, pruned."""

import errno
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports import Exit, Finished, ProcessIdentity
from sim.world import scenery
from statemachine.problem import Step
from statemachine.reasons import Reason
from supervisor.settings import CdiSource, Settings
from supervisor.spec_keeper import SpecCounts, SpecKeeper, spec_keeper_of
from tests.gpu.pods import CDI, Pod
from tests.supervisor.keeping import ask, keeping, until

pytestmark = pytest.mark.anyio

TOOLKIT = Path("/usr/local/nvidia/toolkit")
HANGS = ProcessIdentity(pid=77, start_ticks=5)
OTHERS = ProcessIdentity(pid=78, start_ticks=5)
FIRST = CDI / ".new-0000000000000001/nvidia.json"


def empty() -> list[Any]:
    """Room for what is answered."""
    return []


# ---- one for all


@pytest.mark.parametrize("count", [1, 2, 10])
async def test_all_who_ask_at_once_share_one_run(count):
    pod, answers = Pod(), empty()
    pod.processes.gate = anyio.Event()
    async with keeping(pod) as keeper, anyio.create_task_group() as askers:
        for _ in range(count):
            askers.start_soon(ask, keeper, pod, answers)
        await until(lambda: pod.processes.argvs)
        await anyio.wait_all_tasks_blocked()
        assert not answers
        pod.processes.gate.set()
    assert len(pod.processes.argvs) == pod.processes.versions == 1
    assert len(answers) == count
    assert len({id(answer) for answer in answers}) == 1
    assert answers[0].spec.device(pod.inventory.gpus[0].uuid)


async def test_who_comes_while_it_is_made_gets_it_and_who_comes_later_too():
    pod, answers = Pod(), empty()
    pod.processes.gate = anyio.Event()
    async with keeping(pod) as keeper:
        async with anyio.create_task_group() as askers:
            askers.start_soon(ask, keeper, pod, answers)
            await until(lambda: pod.processes.argvs)
            askers.start_soon(ask, keeper, pod, answers)
            await anyio.wait_all_tasks_blocked()
            pod.processes.gate.set()
        answers.append(await ask(keeper, pod))
    assert len(pod.processes.argvs) == 1
    assert len({id(answer) for answer in answers}) == 1


async def test_what_came_of_it_is_counted_and_who_waits_now_too():
    pod, answers = Pod(), empty()
    pod.processes.gate, pod.processes.ends = anyio.Event(), Finished(exit=Exit(code=1), stderr=b"no luck\n")
    async with keeping(pod) as keeper:
        assert keeper.counts == SpecCounts()
        async with anyio.create_task_group() as askers:
            for _ in range(3):
                askers.start_soon(ask, keeper, pod, answers)
            await until(lambda: pod.processes.argvs)
            await anyio.wait_all_tasks_blocked()
            assert keeper.counts == SpecCounts(waiting=3, running=1)
            pod.processes.gate.set()
        assert keeper.counts == SpecCounts(failed=1)
        pod.processes.ends = None
        await ask(keeper, pod)
        assert keeper.counts == SpecCounts(failed=1, made=1)
        await ask(keeper, pod)
        assert keeper.counts == SpecCounts(failed=1, made=1, kept=1)


async def test_all_who_wait_share_a_failure_and_the_next_one_tries_anew():
    pod, answers = Pod(), empty()
    pod.processes.gate, pod.processes.ends = anyio.Event(), Finished(exit=Exit(code=1), stderr=b"no luck\n")
    async with keeping(pod) as keeper:
        async with anyio.create_task_group() as askers:
            for _ in range(3):
                askers.start_soon(ask, keeper, pod, answers)
            await until(lambda: pod.processes.argvs)
            pod.processes.gate.set()
        assert [answer.reason for answer in answers] == [Reason.GENERATE_FAILED] * 3
        assert len(pod.processes.argvs) == 1
        pod.processes.ends = None
        assert (await ask(keeper, pod)).spec
        assert len(pod.processes.argvs) == 2


async def test_one_who_gives_up_takes_it_from_nobody_else():
    pod, answers = Pod(), empty()
    pod.processes.gate = anyio.Event()
    async with keeping(pod) as keeper, anyio.create_task_group() as askers:
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(ask, keeper, pod)
            await until(lambda: pod.processes.argvs)
            askers.start_soon(ask, keeper, pod, answers)
            await anyio.wait_all_tasks_blocked()
            impatient.cancel_scope.cancel()
        pod.processes.gate.set()
    assert answers[0].spec
    assert (len(pod.processes.argvs), pod.processes.cancelled) == (1, 0)


async def test_when_all_have_given_up_it_is_finished_for_the_next():
    pod = Pod()
    pod.processes.gate = anyio.Event()
    async with keeping(pod) as keeper:
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(ask, keeper, pod)
            await until(lambda: pod.processes.argvs)
            impatient.cancel_scope.cancel()
        pod.processes.gate.set()
        assert (await ask(keeper, pod)).spec
    assert (len(pod.processes.argvs), pod.processes.cancelled) == (1, 0)


async def test_who_asks_for_other_gpus_waits_for_the_run_and_has_one_of_his_own():
    pod, answers = Pod(2, 3), empty()
    pod.processes.gate = anyio.Event()
    async with keeping(pod) as keeper, anyio.create_task_group() as askers:
        askers.start_soon(ask, keeper, pod, answers)
        await until(lambda: pod.processes.argvs)
        pod.gpus.remove_node("nvidia3")
        askers.start_soon(ask, keeper, pod, answers)
        await anyio.wait_all_tasks_blocked()
        assert len(pod.processes.argvs) == 1
        pod.processes.gate.set()
    assert len(pod.processes.argvs) == 2
    # The first one's GPU had gone when its spec came to be verified.
    assert answers[0].reason is Reason.CDI_DEVICE_UNRESOLVED
    assert answers[1].spec


async def test_a_gpu_that_comes_back_is_in_the_spec_though_nothing_else_changed():
    pod = Pod()
    pod.gpus.lose(2)
    async with keeping(pod) as keeper:
        first = await ask(keeper, pod)
        pod.gpus.recover(2)
        again = await ask(keeper, pod)
    uuid = pod.inventory.gpus[0].uuid
    assert (first.spec.device(uuid), again.spec.device(uuid) is None) == (None, False)


async def test_a_warm_spec_costs_some_looks_at_files_and_nothing_else():
    pod = Pod()
    async with keeping(pod) as keeper:
        first = await ask(keeper, pod)
        pod.files.looks.clear()
        assert await ask(keeper, pod) is first
    assert 0 < len(pod.files.looks) <= 16
    assert (len(pod.processes.argvs), pod.processes.versions) == (1, 1)


async def test_a_change_between_two_asks_is_seen_without_any_watch():
    pod = Pod()
    async with keeping(pod) as keeper:
        first = await ask(keeper, pod)
        scenery.put_file(pod.disk, pod.gpus.toolkit.program, b"\x7fELF newer", mode=0o755)
        assert (await ask(keeper, pod)).identity != first.identity
    assert (len(pod.processes.argvs), pod.processes.versions) == (2, 2)


async def test_a_fault_of_ours_is_a_reason_and_the_keeper_goes_on():
    class Faulty:
        async def watched(self):
            return ()

        async def make(self, inventory, driver, last):
            raise KeyError("oh")

    pod = Pod()
    async with keeping(pod, source=Faulty()) as keeper:
        for _ in range(2):
            problem = await ask(keeper, pod)
            assert (problem.step, problem.reason) == (Step.GENERATE, Reason.INTERNAL)


async def test_before_anybody_asks_nothing_is_done():
    pod = Pod()
    async with keeping(pod):
        await anyio.wait_all_tasks_blocked()
        assert not pod.files.looks
        assert not pod.watch.within_s


# ---- the end


async def test_when_the_worker_ends_the_run_is_ended_and_who_waits_is_told():
    pod, answers = Pod(), empty()
    pod.processes.gate = anyio.Event()
    keeper = SpecKeeper(ports=pod.as_ports, directory=CDI, source=pod.source())
    async with anyio.create_task_group() as askers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.run)
            askers.start_soon(ask, keeper, pod, answers)
            await until(lambda: pod.processes.argvs)
            tasks.cancel_scope.cancel()
        askers.start_soon(ask, keeper, pod, answers)
    assert [answer.reason for answer in answers] == [Reason.WORKER_DRAINING] * 2
    assert pod.processes.cancelled == 1
    assert pod.specs() == {}


async def test_who_asks_a_keeper_that_ended_before_it_began_is_told():
    pod = Pod()
    keeper = SpecKeeper(ports=pod.as_ports, directory=CDI, source=pod.source())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await keeper.run()
    assert (await ask(keeper, pod)).reason is Reason.WORKER_DRAINING


# ---- the directory


async def made_on_many_boots(pod, keeper, monkeypatch, count):
    identities = []
    for boot in range(count):
        monkeypatch.setattr(pod.wall, "boot_id", partial(str, boot))
        scenery.put_file(pod.disk, Path("/dev/tick"))  # so that the stamps do not hold
        identities.append((await ask(keeper, pod)).identity)
        pod.pass_s(1)
        await anyio.wait_all_tasks_blocked()
    return identities


async def test_the_newest_two_specs_stay_on_disk(monkeypatch):
    pod = Pod()
    async with keeping(pod) as keeper:
        identities = await made_on_many_boots(pod, keeper, monkeypatch, 5)
    assert {name.split("/")[0] for name in pod.specs()} == set(identities[-2:])


async def test_a_spec_that_an_actor_uses_stays_and_what_is_none_is_left_alone(monkeypatch):
    pod = Pod()
    used: set[str] = set()
    scenery.put_file(pod.disk, CDI / "somebody/else", b"")
    async with keeping(pod, in_use=lambda: used) as keeper:
        used.add((await made_on_many_boots(pod, keeper, monkeypatch, 1))[0])
        identities = await made_on_many_boots(pod, keeper, monkeypatch, 5)
    assert {name.split("/")[0] for name in pod.specs()} == {*used, *identities[-2:], "somebody"}


async def test_what_cannot_be_removed_is_no_problem_of_who_asks(monkeypatch):
    pod = Pod()
    async with keeping(pod) as keeper:
        (first,) = await made_on_many_boots(pod, keeper, monkeypatch, 1)
        pod.files.failures["rename", CDI / first] = OSError(errno.EBUSY, "busy")
        identities = await made_on_many_boots(pod, keeper, monkeypatch, 5)
        assert (await ask(keeper, pod)).identity == identities[-1]


async def test_what_was_removed_in_part_is_found_by_nobody(monkeypatch):
    pod = Pod()

    async def half(_path):
        raise OSError(errno.EIO, "half of it is gone")

    async with keeping(pod) as keeper:
        first = await made_on_many_boots(pod, keeper, monkeypatch, 2)
        monkeypatch.setattr(pod.files, "remove_tree", half)
        later = await made_on_many_boots(pod, keeper, monkeypatch, 4)
    found = {name.split("/")[0] for name in pod.specs()}
    assert found.isdisjoint({*first, *later[:-2]})
    assert found >= set(later[-2:])


# ---- put together


@pytest.mark.parametrize("cdi_source", CdiSource)
async def test_the_settings_say_where_specs_come_from(cdi_source):
    pod = Pod()
    settings = Settings(
        state_dir=CDI.parent,
        run_dir=Path("/run"),
        assignments=None,
        runsc=Path("/runsc"),
        toolkit_dir=TOOLKIT,
        cdi_source=cdi_source,
    )
    keeper = spec_keeper_of(pod.as_ports, settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        answer = await ask(keeper, pod)
        tasks.cancel_scope.cancel()
    if cdi_source is CdiSource.HOST:
        assert answer.reason is Reason.CDI_DEVICE_UNRESOLVED
    else:
        assert answer.path.is_relative_to(CDI)
