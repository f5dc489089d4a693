"""The worker's cgroup: taken in hand or not, told once, swept of what nobody has; and what is measured by it."""

from __future__ import annotations

import errno
from pathlib import Path

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from actors import concurrency
from actors.bundle.activation_tree import enter_path
from actors.gpu.partition import Claim
from actors.ports import CgroupLimits, CgroupUsage, Delegation
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.cgroups import Mode, WorkerCgroups, take_in_hand
from supervisor.settings import CgroupsWanted
from supervisor.usage import READS_MAX, ActorUsage, measured_status, measured_worker_status
from tests.fakes.nvml import put_nodes
from tests.fakes.ports import FakePorts
from tests.gpu.making import gpu
from tests.supervisor.stands import STATE, a_stand

pytestmark = pytest.mark.anyio
ACTORS = Path("/cgroup/actors")
MISSING = Delegation(actors=ACTORS, controllers=("memory",), missing=(("cpu", "the pod has none"),))


def ports_with(delegation=None):
    ports = FakePorts()
    if delegation is not None:
        ports.cgroups.unavailable, ports.cgroups.delegation = "", delegation
    return ports


WHOLE = Delegation(actors=ACTORS, controllers=("cpu", "memory"))


@pytest.mark.parametrize(
    ("delegation", "mode", "controllers", "reason", "message"),
    [
        (WHOLE, "enforced", ["cpu", "memory"], None, ""),
        (MISSING, "leaves", ["memory"], "CgroupUnavailable", "cpu is not limited: the pod has none"),
        (None, "off", [], "CgroupUnavailable", "the fake machine has no cgroups"),
    ],
)
async def test_what_became_of_it_is_told_once_and_stands_in_the_status(delegation, mode, controllers, reason, message):
    with capture_logs() as logs:
        found = await take_in_hand(ports_with(delegation).as_ports, CgroupsWanted.AUTO)
    assert found.as_json() == {"mode": mode, "controllers": controllers, "reason": reason, "message": message}
    (told,) = logs
    assert (told["event"], told["mode"], told["log_level"]) == (
        "cgroups", mode, "info" if mode == "enforced" else "warning",
    )  # fmt: skip


async def test_who_wants_none_touches_none():
    ports = ports_with(WHOLE)
    ports.cgroups.delegate = None
    with capture_logs() as logs:
        found = await take_in_hand(ports.as_ports, CgroupsWanted.OFF)
    assert (found.mode, found.delegation, logs) == (Mode.OFF, None, [])


@pytest.mark.parametrize("delegation", [None, MISSING])
async def test_who_requires_them_does_not_start_unless_everything_is_enforced(delegation):
    with pytest.raises(ProblemError) as caught:
        await take_in_hand(ports_with(delegation).as_ports, CgroupsWanted.REQUIRE)
    assert caught.value.problem.reason is Reason.CGROUP_UNAVAILABLE
    found = await take_in_hand(ports_with(WHOLE).as_ports, CgroupsWanted.REQUIRE)
    assert found.mode is Mode.ENFORCED


async def test_an_error_on_the_way_is_a_reason_and_not_the_end():
    ports = ports_with(WHOLE)

    async def fail():
        raise OSError(errno.EMFILE, "Too many open files")

    ports.cgroups.delegate = fail
    found = await take_in_hand(ports.as_ports, CgroupsWanted.AUTO)
    assert (found.mode, found.message) == (Mode.OFF, "Too many open files")


# ---- swept


async def swept(ports, *names, activations=()):
    for name in names:
        await ports.cgroups.make(name, leaves=(), limits=CgroupLimits())
    for activation in activations:
        ports.files.put(STATE.activation(activation) / "sandbox.json", b"{}")
    with capture_logs() as logs:
        await WorkerCgroups(delegation=WHOLE).sweep(ports.as_ports, STATE.sandboxes)
    return logs


async def test_what_has_no_activation_any_more_is_removed_and_the_rest_stays():
    ports = ports_with(WHOLE)
    assert await swept(ports, "a1.lives", "a1.gone", "a2.gone2", activations=["lives"]) == []
    assert await ports.cgroups.names() == ("a1.lives",)


async def test_one_that_cannot_be_removed_is_told_and_the_others_are():
    ports = ports_with(WHOLE)
    remove = ports.cgroups.remove

    async def removing(name, *, deadline_s):
        if name == "a1.stuck":
            raise TimeoutError
        if name == "a2.busy":
            raise OSError(errno.EBUSY, "Device or resource busy")
        await remove(name, deadline_s=deadline_s)

    ports.cgroups.remove = removing
    logs = await swept(ports, "a1.stuck", "a2.busy", "a3.gone", activations=["lives"])
    assert [(each["subject"], each["message"]) for each in logs] == [
        ("a1.stuck", "something in it does not end"), ("a2.busy", "Device or resource busy"),
    ]  # fmt: skip
    assert await ports.cgroups.names() == ("a1.stuck", "a2.busy")


async def test_where_activations_cannot_be_listed_nothing_is_removed():
    ports = ports_with(WHOLE)
    ports.files.fail("list_directory", "sandboxes", errno.EIO)
    logs = await swept(ports, "a1.x")
    assert [each["event"] for each in logs] == ["unswept"]
    assert await ports.cgroups.names() == ("a1.x",)


async def test_after_some_have_ended_their_cgroups_go_and_no_other_one_is_touched():
    ports = ports_with(WHOLE)
    for name in ("a1.ended", "a1.beginning", "a2.gone"):
        await ports.cgroups.make(name, leaves=(), limits=CgroupLimits())
    await WorkerCgroups(delegation=WHOLE).sweep_after(ports.as_ports, {"ended", "another"})
    assert await ports.cgroups.names() == ("a1.beginning", "a2.gone")


async def test_what_was_begun_in_a_cgroup_and_lives_on_in_a_worker_without_one_is_told():
    ports = ports_with()
    ports.files.put(enter_path(STATE.activation("taken")), b"")
    ports.files.put(STATE.activation("without") / "sandbox.json", b"{}")
    with capture_logs() as logs:
        await WorkerCgroups(message="it is v1").sweep(ports.as_ports, STATE.sandboxes)
    (told,) = logs
    assert (told["event"], told["subject"], told["log_level"]) == ("unswept", "taken", "warning")
    assert told["message"] == "its cgroup stays when it ends, as this worker has none of its own: it is v1"


async def test_without_a_delegation_nothing_is_looked_for():
    ports = ports_with()
    await ports.cgroups.make("a1.gone", leaves=(), limits=CgroupLimits())
    await WorkerCgroups().sweep(ports.as_ports, STATE.sandboxes)
    assert await ports.cgroups.names() == ("a1.gone",)


# ---- measured


async def measured(stand, **numbers):
    """Actor a1 with an activation that has used this."""
    await stand.running()
    stage = stand.performers["a1"].stage
    stage.cgroups, stage.activation = WHOLE, STATE.activation("x")
    name = "a1.x"
    await stand.ports.cgroups.make(name, leaves=(), limits=CgroupLimits())
    stand.ports.cgroups.used[name] = CgroupUsage(**numbers)
    return stage


async def test_the_status_has_what_each_actor_uses_and_null_is_not_measured():
    async with a_stand() as stand:
        await measured(stand, cpu_usec=12, memory_bytes=0, processes=4)
        await stand.running("a2")
        status = await measured_worker_status(stand.worker, boot_id="boot-1")
        first, second = (each["usage"] for each in status["actors"])
        assert first == {
            "source": "Cgroup", "observedAt": "1970-01-12T13:46:40.000Z", "why": None, "cpu_usec": 12,
            "throttledPeriods": None, "throttled_usec": None, "memory_bytes": 0, "memoryPeak_bytes": None,
            "workingSet_bytes": None, "oomKills": None, "processes": 4, "gpuMemory_bytes": None,
        }  # fmt: skip
        assert second == ActorUsage(why="the worker has no cgroup to measure by").as_json()
        assert set(second) == set(first)
        assert status["worker"]["cgroups"]["mode"] == "off"


async def test_gpu_memory_is_that_of_the_gpus_that_an_actor_holds_also_where_nothing_else_is_measured():
    async with a_stand() as stand:
        put_nodes(stand.files, 0, 1, 2)
        stand.nvml.answer(*(gpu(minor) for minor in (0, 1, 2)))
        await stand.submit("a1", spec__containers__0__resources={"limits": {"nvidia.com/gpu": "2"}})
        await stand.worker.gpus.grant("a1", [Claim("main", 2)])
        held = stand.worker.gpus.held_by("a1")["main"]
        stand.nvml.used_bytes = {gpu(minor).uuid: 1 << minor for minor in (0, 1, 2)}
        expected = sum(used for uuid, used in stand.nvml.used_bytes.items() if uuid in held)
        found = await stand.worker.usages.of("a1")
        assert (len(held), found.gpu_memory_bytes, found.as_json()["source"]) == (2, expected, "Unspecified")
        # Part of it is not all of it.
        del stand.nvml.used_bytes[held[0]]
        assert (await stand.worker.usages.of("a1")).gpu_memory_bytes is None
        assert (await stand.worker.usages.of("a2")).gpu_memory_bytes is None


async def test_files_that_cannot_be_read_are_that_actors_alone():
    """Case 040: EIO is an error for that actor only, and no number."""
    async with a_stand() as stand:
        await measured(stand, memory_bytes=1)
        await stand.running("a2")

        async def fail(_name):
            raise OSError(errno.EIO, "Input/output error")

        stand.ports.cgroups.usage = fail
        found = (await measured_status(stand.worker, stand.life()))["usage"]
        assert (found["source"], found["memory_bytes"]) == ("Unspecified", None)
        assert "Input/output error" in found["why"]
        assert len((await measured_worker_status(stand.worker, boot_id="b"))["actors"]) == 2


async def test_numbers_are_not_told_of_an_actor_whose_activation_has_ended_since():
    """Case 040: recycled during a read."""
    async with a_stand() as stand:
        stage = await measured(stand, memory_bytes=1)
        found = await stand.worker.usages.of("a1")
        assert stand.worker.usages.still("a1", found) == found
        stage.activation = STATE.activation("y")
        assert stand.worker.usages.still("a1", found).measured is None


async def test_who_is_not_here_or_forgotten_has_none():
    async with a_stand() as stand:
        await measured(stand, memory_bytes=1)
        assert (await stand.worker.usages.of("a9")).measured is None
        stand.worker.usages.forget("a1")
        assert await stand.worker.usages.of_all(["a1"]) == {"a1": await stand.worker.usages.of("a1")}
        assert (await stand.worker.usages.of("a1")).measured is None


async def test_many_are_read_side_by_side_and_not_all_at_once():
    """Case 040: a thousand actors."""
    async with a_stand() as stand:
        stage = await measured(stand, memory_bytes=1)
        uids = [f"a{number}" for number in range(1000)]
        for uid in uids:
            stand.worker.usages.follow(uid, stage)
        reading, most = 0, 0

        async def read(_name):
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await anyio.lowlevel.checkpoint()
            reading -= 1
            return CgroupUsage(memory_bytes=1)

        stand.ports.cgroups.usage = read
        found = await stand.worker.usages.of_all(uids)
        assert {uid: each.measured for uid, each in found.items()} == dict.fromkeys(uids, CgroupUsage(memory_bytes=1))
        assert 1 < most <= READS_MAX


async def test_who_has_nothing_that_could_be_read_costs_no_task_however_many_they_are(monkeypatch):
    jobs = 0

    async def together(*given):
        nonlocal jobs
        jobs += len(given)
        await concurrency.together(*given)

    monkeypatch.setattr("supervisor.usage.together", together)
    async with a_stand() as stand:
        stage = await measured(stand, memory_bytes=1)
        over = attrs.evolve(stage, activation=None)
        uids = [f"over{number}" for number in range(1000)]
        for uid in uids:
            stand.worker.usages.follow(uid, over)
        found = await stand.worker.usages.of_all(["a1", "nobody", *uids])
    assert jobs == 1
    assert found["a1"].measured == CgroupUsage(memory_bytes=1)
    assert {found[uid].why for uid in uids} == {"it has no cgroup now"}
    assert found["nobody"].why == "the worker has no cgroup to measure by"


async def test_nothing_is_read_by_itself_and_the_status_file_has_no_numbers():
    async with a_stand() as stand:

        async def fail(_name):
            raise AssertionError("nobody has asked")

        stand.ports.cgroups.usage = fail
        await stand.running()
        assert "usage" not in stand.status()
