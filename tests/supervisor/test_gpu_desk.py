"""The worker's desk for its GPUs: what it says when it is asked, and who is told of a loss."""

from contextlib import asynccontextmanager

import anyio
import pytest

from actors.gpu.desk import SpecFacts
from actors.gpu.facts import XidFact
from actors.gpu.partition import Grant
from actors.gpu.view import NvmlAnswers
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import DEADLINE_S, State
from supervisor import gpu_desk
from tests.actors.assignments import admitted, document
from tests.fakes.files import FakeFiles
from tests.fakes.nvml import DRIVER, FakeKeeper, FakeNvml, desk_on, put_nodes
from tests.gpu.making import claims, gpu, inventory

pytestmark = pytest.mark.anyio

BOUND_S = 90


def a_desk(*minors, answers=True):
    """A desk on a pod with these GPUs."""
    files, nvml, keeper = FakeFiles(), FakeNvml(), FakeKeeper()
    put_nodes(files, *minors)
    if answers:
        nvml.answer(*map(gpu, minors))
    desk = desk_on(files, nvml, keeper)
    return desk, files, nvml, keeper


def claiming(uid="a1", **counts):
    containers = [
        {"name": name, "rootfs": "/rootfs", "command": ["x"], "resources": {"limits": {"nvidia.com/gpu": count}}}
        for name, count in counts.items()
    ]
    return admitted(document(metadata__uid=uid, spec__containers=containers))


async def problem_of(call):
    with pytest.raises(ProblemError) as caught:
        await call
    return caught.value.problem


async def test_a_pod_without_nodes_is_told_so_and_nvml_is_not_waited_for():
    desk, *_ = a_desk(answers=False)
    with anyio.fail_after(BOUND_S):
        problem = await problem_of(desk.inventory())
    assert (problem.reason, problem.step) == (Reason.GPU_NOT_DETECTED, Step.DETECT)


async def test_nvml_that_fails_is_no_pod_without_gpus():
    desk, _, nvml, _ = a_desk(2, answers=False)
    nvml.fail()
    problem = await problem_of(desk.inventory())
    assert (problem.reason, problem.step) == (Reason.NVML_UNAVAILABLE, Step.DETECT)
    assert [each.reason for each in desk.problems()] == [Reason.NVML_UNAVAILABLE]
    nvml.answer(gpu(2))
    assert (await desk.inventory()).gpus == (gpu(2),)
    assert desk.problems() == ()


async def test_a_desk_that_was_never_asked_has_no_problem_and_no_gpu_to_show():
    desk, _, _, _ = a_desk(answers=False)
    assert (desk.problems(), desk.as_json()) == ((), [])


async def test_a_gpu_without_its_node_is_not_dealt_out():
    desk, files, *_ = a_desk(2, 3)
    put_nodes(files, 3)
    assert await desk.grant("a1", claims(main=1)) == (Grant("main", ("GPU-3",)),)
    assert (await problem_of(desk.grant("a2", claims(main=1)))).reason is Reason.INSUFFICIENT_GPUS


async def test_a_booking_counts_and_a_refusal_names_who_has_booked():
    desk, _, _, _ = a_desk(2, 3)
    assert await desk.book(claiming("a1", main=1, side=0))
    problem = await problem_of(desk.book(claiming("a2", main=2)))
    assert (problem.reason, problem.step) == (Reason.INSUFFICIENT_GPUS, Step.ADMISSION)
    assert "a1 has booked 1" in problem.message
    assert desk.pool.ticket("a2") is None


async def test_who_has_booked_books_no_second_time_and_who_claims_nothing_never():
    desk, _, nvml, _ = a_desk(2)
    assert [await desk.book(claiming("a1", main=1)) for _ in range(2)] == [True, False]
    nvml.fail()
    assert not await desk.book(claiming("a2", main=0))
    assert [ticket.uid for ticket in desk.pool.tickets] == ["a1"]


async def test_two_bookings_of_one_actor_at_once_are_one():
    desk, _, nvml, _ = a_desk(2, 3, answers=False)
    answers = []

    async def book():
        answers.append(await desk.book(claiming("a1", main=1)))

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(book)
            group.start_soon(book)
            await anyio.wait_all_tasks_blocked()
            nvml.answer(gpu(2), gpu(3))
    assert sorted(answers) == [False, True]


async def test_while_nvml_fails_nothing_is_booked_and_nothing_refused():
    desk, _, nvml, _ = a_desk(2, answers=False)
    nvml.fail()
    assert not await desk.book(claiming(main=1))
    assert desk.pool.tickets == ()


async def test_who_has_not_booked_stands_behind_all_who_have():
    desk, _, _, _ = a_desk(2, 3, 5)
    await desk.book(claiming("a1", main=2))
    assert await desk.grant("late", claims(main=1)) == (Grant("main", ("GPU-5",)),)
    assert await desk.grant("a1", claims(main=2)) == (Grant("main", ("GPU-2", "GPU-3")),)
    problem = await problem_of(desk.grant("later", claims(main=1)))
    assert (problem.reason, problem.step) == (Reason.INSUFFICIENT_GPUS, Step.PARTITION)


@pytest.mark.parametrize(
    ("ask", "state"),
    [
        (lambda desk: desk.inventory(), State.DETECTING),
        (lambda desk: desk.spec("a1"), State.GENERATING),
        (lambda desk: desk.grant("a1", claims(main=1)), State.PARTITIONING),
    ],
)
async def test_no_step_waits_for_nvml_as_long_as_its_state_may_last(ask, state):
    desk, _, nvml, _ = a_desk(2, answers=False)
    limits = []

    async def silent(limit_s):
        limits.append(limit_s)
        return nvml.view

    nvml.first_word = silent
    assert (await problem_of(ask(desk))).reason is Reason.NVML_UNAVAILABLE
    assert sum(limits) < DEADLINE_S[state]


async def test_what_is_given_back_is_free_again():
    desk, _, _, _ = a_desk(2)
    await desk.grant("a1", claims(main=1))
    desk.give_back("a1")
    desk.give_back("a1")
    assert desk.grants("a1") == ()
    assert await desk.grant("a2", claims(main=1)) == (Grant("main", ("GPU-2",)),)


async def test_a_spec_is_in_use_until_its_actor_gives_its_gpus_back():
    desk, _, _, keeper = a_desk(2)
    used = desk._specs
    kept = await desk.spec("a1")
    assert keeper.asked == [(inventory(2), DRIVER)]
    assert set(used.values()) == {kept.identity}
    desk.give_back("a1")
    assert used == {}


async def test_what_is_left_to_an_activation_is_not_the_actors_that_books_anew():
    desk, _, _, _ = a_desk(0, 1, 2)
    used = desk._specs
    await desk.grant("a1", claims(main=1))
    kept = await desk.spec("a1")
    desk.leave_to("left", "a1")
    assert desk.grants("left") == (Grant("main", ("GPU-0",)),)
    assert await desk.grant("a1", claims(other=2)) == (Grant("other", ("GPU-1", "GPU-2")),)
    desk.give_back("a1")
    assert used == {"left": kept.identity}
    desk.give_back("left")
    desk.leave_to("left", "a1")
    assert (used, desk.pool.tickets) == ({}, ())


@asynccontextmanager
async def watching(desk):
    told = []

    async def tell(uid, event):
        told.append((uid, event.gpu, event.problem.reason))

    async def tell_trouble(uid, problem, count):
        told.append((uid, problem.subject, count))

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(desk.run, tell, tell_trouble)
            await anyio.wait_all_tasks_blocked()
            yield told
            group.cancel_scope.cancel()


async def test_only_the_holder_of_a_gpu_is_told_of_its_xids_and_together():
    desk, _, nvml, _ = a_desk(2, 3)
    await desk.grant("a1", claims(main=1))
    async with watching(desk) as told:
        for gpu, xid in (("GPU-2", 13), ("GPU-2", 13), ("GPU-3", 13), ("GPU-2", 79), ("GPU-none", 13), (None, 13)):
            nvml.xids.add(XidFact(gpu=gpu, xid=xid), 0.0)
        await anyio.wait_all_tasks_blocked()
        assert told == [("a1", "/dev/nvidia2 XID 13", 2)]


async def test_an_xid_is_told_to_who_held_the_gpu_when_it_came_and_not_to_the_next_one():
    desk, _, nvml, _ = a_desk(2)
    await desk.grant("a1", claims(main=1))
    nvml.xids.add(XidFact(gpu="GPU-2", xid=13), 0.0)
    desk.give_back("a1")
    nvml.xids.add(XidFact(gpu="GPU-2", xid=31), 0.0)  # nobody's
    await desk.grant("a2", claims(main=1))
    nvml.xids.add(XidFact(gpu="GPU-2", xid=43), 0.0)
    async with watching(desk) as told:
        assert told == [("a1", "/dev/nvidia2 XID 13", 1), ("a2", "/dev/nvidia2 XID 43", 1)]


async def test_only_the_holder_of_a_lost_gpu_is_told_and_once():
    desk, _, nvml, _ = a_desk(2, 3, 5)
    await desk.grant("a1", claims(main=2))
    await desk.grant("a2", claims(main=1))
    async with watching(desk) as told:
        for lost in ({3: "XID 79"}, {3: "XID 79", 5: None}, {3: "NVML_ERROR_GPU_IS_LOST"}):
            nvml.answer(*inventory(2, 3, 5, lost=lost).gpus)
            await anyio.wait_all_tasks_blocked()
        assert told == [("a1", "GPU-3", Reason.GPU_LOST)]
        desk.give_back("a1")
        nvml.answer(gpu(2), gpu(3), gpu(5))
        assert await desk.grant("a3", claims(main=2)) == (Grant("main", ("GPU-2", "GPU-3")),)
        nvml.answer(*inventory(2, 3, 5, lost={3: "XID 79"}).gpus)
        await anyio.wait_all_tasks_blocked()
        assert told[1:] == [("a3", "GPU-3", Reason.GPU_LOST)]


async def test_nvml_that_fails_takes_no_gpu_from_anybody():
    desk, _, nvml, _ = a_desk(2)
    await desk.grant("a1", claims(main=1))
    async with watching(desk) as told:
        nvml.fail()
        await anyio.wait_all_tasks_blocked()
        assert told == []
        assert desk.grants("a1") == (Grant("main", ("GPU-2",)),)


@pytest.mark.parametrize(("minors", "starts"), [((2, 3), 1), ((), 0)])
async def test_the_spec_is_begun_with_the_worker_where_there_are_gpus(minors, starts):
    desk, _, _, keeper = a_desk(*minors)
    async with watching(desk):
        assert keeper.started == [(inventory(*minors), DRIVER)] * starts


async def test_the_spec_is_begun_once_nvml_answers_however_late():
    desk, _, nvml, keeper = a_desk(2, 3, answers=False)
    nvml.fail()
    async with watching(desk):
        nvml.fail("nvmlInit: NVML_ERROR_UNKNOWN")
        await anyio.wait_all_tasks_blocked()
        assert keeper.started == []
        nvml.answer(gpu(2), gpu(3))
        await anyio.wait_all_tasks_blocked()
        nvml.answer(gpu(2))
        await anyio.wait_all_tasks_blocked()
        assert keeper.started == [(inventory(2, 3), DRIVER)]


async def test_the_gpus_are_shown_with_state_and_holder():
    desk, _, nvml, _ = a_desk(2, 3, 5)
    await desk.grant("a1", claims(side=0, main=1))
    nvml.answer(*inventory(2, 3, 5, lost={5: "XID 79"}).gpus)
    shown = {each["minor"]: (each["state"], each["holder"], each["lost"]) for each in desk.as_json()}
    assert shown == {
        2: ("Held", {"uid": "a1", "container": "main", "ordinal": 0}, None),
        3: ("Free", None, None),
        5: ("Lost", None, "XID 79"),
    }
    assert set(desk.as_json()[0]) >= {"minor", "uuid", "path", "pciBusId", "model", "state", "holder"}


async def test_a_gpu_that_this_pod_has_no_node_of_is_not_shown():
    desk, files, nvml, _ = a_desk(2, 3)
    put_nodes(files, 3)
    await desk.inventory()
    assert [each["minor"] for each in desk.as_json()] == [3]
    nvml.answer(*inventory(2, 3, lost={3: "XID 79"}).gpus)
    assert [(each["minor"], each["state"]) for each in desk.as_json()] == [(3, "Lost")]


# ------------------------------------------------------------------------------------------------ who computes on them


def told(**processes):
    """What NVML answers; `told(GPU_2=(7,))`."""
    named = {name.replace("_", "-"): pids for name, pids in processes.items()}
    return NvmlAnswers(driver=DRIVER, inventory=inventory(2, 3), processes=named)


async def test_who_computes_is_what_nvml_has_told_of_just_these_gpus():
    desk, _, nvml, _ = a_desk(2, 3)
    nvml.say(told(GPU_2=(7,), GPU_3=()))
    assert await desk.compute_processes(["GPU-2"]) == {"GPU-2": (7,)}
    assert await desk.compute_processes([]) == {}


async def test_processes_that_were_not_told_yet_are_waited_for():
    desk, _, nvml, _ = a_desk(2, 3)
    answers = []

    async def ask():
        answers.append(await desk.compute_processes(["GPU-2", "GPU-3"]))

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            for view in (told(GPU_2=()), told(GPU_2=(), GPU_3=(9,))):
                await anyio.wait_all_tasks_blocked()
                assert answers == []
                nvml.say(view)
    assert answers == [{"GPU-2": (), "GPU-3": (9,)}]


async def test_processes_that_nvml_does_not_tell_are_a_reason_with_the_gpu(monkeypatch):
    monkeypatch.setattr(gpu_desk, "NEXT_WORD_S", 0.01)
    desk, _, nvml, _ = a_desk(2, 3)
    nvml.say(told(GPU_2=()))
    problem = await problem_of(desk.compute_processes(["GPU-2", "GPU-3"]))
    assert (problem.reason, problem.step) == (Reason.NVML_UNAVAILABLE, Step.SUSPEND)
    assert problem.message == "NVML does not say which processes compute on GPU-3"


@pytest.mark.parametrize("before", [None, told(GPU_2=())])
async def test_while_nvml_fails_nobody_knows_who_computes_and_nobody_waits_for_it(monkeypatch, before):
    monkeypatch.setattr(gpu_desk, "NEXT_WORD_S", 3600.0)
    desk, _, nvml, _ = a_desk(2, 3)
    if before is not None:
        nvml.say(before)
    nvml.fail("nvmlInit: NVML_ERROR_UNKNOWN")
    with anyio.fail_after(BOUND_S):
        problem = await problem_of(desk.compute_processes(["GPU-2"]))
    assert (problem.reason, problem.step) == (Reason.NVML_UNAVAILABLE, Step.SUSPEND)
    assert "NVML_ERROR_UNKNOWN" in problem.message


# ---- what an actor holds since an earlier life of the worker


async def test_what_is_kept_is_held_before_anybody_can_ask_and_as_it_was():
    desk, *_ = a_desk(1, 2, 3)
    grants = [Grant("b", ("GPU-3",)), Grant("a", ())]
    assert desk.keep("a1", grants, SpecFacts(identity="00ff", driver=DRIVER))
    assert desk.grants("a1") == tuple(grants)
    assert desk.held_by("a1") == {"b": ("GPU-3",), "a": ()}
    problem = await problem_of(desk.book(claiming("a2", x=3)))
    assert problem.reason is Reason.INSUFFICIENT_GPUS
    assert "a1 holds 1" in problem.message
    assert await desk.book(claiming("a3", x=2))
    assert not await desk.book(claiming("a1", b=1, a=0))  # it has its own


async def test_a_gpu_is_kept_for_one_only():
    desk, *_ = a_desk(1, 2)
    facts = SpecFacts(identity="00ff", driver=DRIVER)
    assert desk.keep("a1", [Grant("b", ("GPU-1",))], facts)
    assert not desk.keep("a2", [Grant("b", ("GPU-1",))], facts)
    assert not desk.keep("a1", [Grant("b", ("GPU-2",))], facts)
    assert desk.grants("a2") == ()
    desk.give_back("a1")
    assert desk.keep("a2", [Grant("b", ("GPU-1",))], facts)
