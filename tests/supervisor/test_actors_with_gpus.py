"""GPUs over the life of actors on a worker: booked at admission, granted, given back at rest, lost."""

from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from actors.gpu.facts import XidFact
from actors.gpu.partition import Grant
from actors.gpu.view import SILENT, NvmlAnswers
from actors.steps.partition import give_back, partition_gpus
from statemachine import commands as c
from statemachine import events as e
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.life import Entrance
from supervisor.memory import first_memory
from tests.actors.assignments import admitted, document
from tests.fakes.nvml import DRIVER, put_nodes
from tests.fakes.performer import FakePerformer, a_problem, a_snapshot, failing
from tests.gpu.making import gpu, inventory
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio


class Granting(FakePerformer):
    """Takes and gives back grants as the real steps do, and succeeds at once in all else."""

    async def perform(self, command, actor):
        answer = await super().perform(command, actor)
        if isinstance(command, c.PartitionGpus):
            self.stage.inventory = await self.stage.gpus.inventory()
            await partition_gpus(self.stage)
        elif isinstance(command, c.RollBack | c.ReleaseSandbox | c.StopContainers):
            give_back(self.stage, command.undo)
        return answer


@asynccontextmanager
async def a_pod(*minors, performer=Granting, **settings):
    """A worker on a pod with these GPUs."""
    async with a_stand(**settings) as stand:
        put_nodes(stand.files, *minors)
        stand.nvml.answer(*map(gpu, minors))

        def made_for(stage):
            uid = stage.assignment.uid
            made = stand.performers[uid] = performer(stage)
            stand.prepare.get(uid, lambda _: None)(made)
            return made

        stand.worker._performer_for = made_for
        yield stand


def claim(count):
    return {"spec__containers__0__resources": {"limits": {"nvidia.com/gpu": count}}}


def free(stand):
    return [each["minor"] for each in stand.worker.gpus.as_json() if each["state"] == "Free"]


async def test_an_actor_that_runs_holds_its_gpus_and_its_status_says_which():
    async with a_pod(2, 3, 5) as stand:
        await stand.running(**claim(2))
        assert stand.story() == [
            "RecordAssignment", "DetectGpus", "GenerateSpec", "PartitionGpus", "InjectEdits", "CreateSandbox",
            "VerifyContainers",
        ]  # fmt: skip
        assert free(stand) == [5]
        assert stand.status()["containers"][0]["gpus"] == ["GPU-2", "GPU-3"]


async def test_an_actor_without_a_claim_takes_no_gpu_step_on_a_gpu_pod():
    async with a_pod(2) as stand:
        await stand.running()
        assert stand.story() == ["RecordAssignment", "CreateSandbox", "VerifyContainers"]
        assert free(stand) == [2]


async def test_a_claim_that_cannot_be_met_is_refused_at_admission_with_the_holders_and_leaves_nothing():
    async with a_pod(2, 3) as stand:
        await stand.running("a1", **claim(2))
        with pytest.raises(ProblemError) as caught:
            await stand.submit("a2", **claim(1))
        assert caught.value.problem.reason is Reason.INSUFFICIENT_GPUS
        assert "a1 holds 2" in caught.value.problem.message
        assert stand.worker.find("a2") is None
        await operations.stop(stand.worker, "a1")
        await stand.until(State.TERMINATED)
        await stand.running("a2", **claim(1))


async def test_a_claim_on_a_pod_without_gpus_is_refused():
    async with a_pod() as stand:
        assert await stand.refused(**claim(1)) == [Reason.GPU_NOT_DETECTED]


async def test_two_claims_at_once_for_the_last_gpu_are_one_actor_and_one_refusal():
    async with a_pod(2) as stand:
        first = await stand.submit("a1", **claim(1))
        assert (first, await stand.refused("a2", **claim(1))) == ("Begun", [Reason.INSUFFICIENT_GPUS])


@pytest.mark.parametrize(
    ("ending", "state"),
    [(operations.suspend, State.SUSPENDED), (operations.stop, State.TERMINATED)],
)
async def test_an_actor_at_rest_has_given_its_gpus_back(ending, state):
    async with a_pod(2) as stand:
        await stand.running(**claim(1))
        await ending(stand.worker, "a1")
        await stand.until(state)
        assert free(stand) == [2]
        assert stand.status()["containers"][0]["gpus"] == []


@pytest.mark.parametrize("step", [c.DetectGpus, c.GenerateSpec, c.InjectEdits, c.CreateSandbox, c.VerifyContainers])
async def test_an_actor_that_fails_on_its_way_up_gives_back_what_it_booked_or_held(step):
    async with a_pod(2) as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update({step: failing(Reason.GENERATE_FAILED)})
        await stand.submit("a1", **claim(1))
        await stand.until(State.FAILED)
        assert stand.worker.gpus.pool.tickets == ()
        await stand.running("a2", **claim(1))


async def test_a_grant_whose_undo_failed_is_kept_until_it_is_undone():
    async with a_pod(2) as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update(
            {c.CreateSandbox: failing(), c.RollBack: [failing()]}
        )
        await stand.submit("a1", **claim(1))
        await stand.until(State.FAILED)
        assert await stand.refused("a2", **claim(1)) == [Reason.INSUFFICIENT_GPUS]
        await operations.stop(stand.worker, "a1")
        await stand.until(State.TERMINATED)
        await stand.running("a2", **claim(1))


async def test_a_suspended_actor_is_resumed_behind_who_took_its_gpus():
    async with a_pod(2) as stand:
        await stand.running("a1", **claim(1))
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        await stand.running("a2", **claim(1))
        with pytest.raises(ProblemError) as caught:
            await operations.resume(stand.worker, "a1")
        assert caught.value.problem.reason is Reason.INSUFFICIENT_GPUS
        assert stand.life("a1").actor.state is State.SUSPENDED
        await operations.suspend(stand.worker, "a2")
        await stand.until(State.SUSPENDED, uid="a2")
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)
        assert stand.worker.gpus.grants("a1") == (Grant("main", ("GPU-2",)),)


async def test_a_higher_generation_that_wants_running_books_as_well():
    async with a_pod(2) as stand:
        await stand.running("a1", **claim(1))
        await stand.submit("a1", 2, spec__desiredState="Suspended", **claim(1))
        await stand.until(State.SUSPENDED)
        await stand.running("a2", **claim(1))
        assert await stand.refused("a1", 3, **claim(1)) == [Reason.INSUFFICIENT_GPUS]
        assert stand.life("a1").assignment.generation == 2
        assert stand.worker.gpus.pool.ticket("a1") is None


async def test_a_request_that_the_machine_refuses_books_nothing():
    async with a_pod(2) as stand:
        await stand.running("a1", **claim(1))
        hold = stand.performers["a1"].hold(c.SaveSnapshot)
        await operations.suspend(stand.worker, "a1")
        await hold.begun.wait()
        with pytest.raises(ProblemError):
            await operations.resume(stand.worker, "a1")
        hold.let_go()
        await stand.until(State.SUSPENDED)
        assert stand.worker.gpus.pool.tickets == ()


async def test_an_actor_whose_gpu_is_lost_fails_with_that_reason_and_the_other_runs_on():
    async with a_pod(2, 3) as stand:
        await stand.running("a1", **claim(1))
        await stand.running("a2", **claim(1))
        async with _watched(stand):
            stand.nvml.answer(*inventory(2, 3, lost={3: "XID 79"}).gpus)
            await stand.until(State.FAILED, uid="a2")
        problem = stand.life("a2").actor.problem
        assert (problem.reason, problem.subject) == (Reason.GPU_LOST, "/dev/nvidia3")
        assert stand.life("a1").actor.state is State.RUNNING
        assert free(stand) == []
        stand.nvml.answer(gpu(2), gpu(3))
        await stand.running("a3", **claim(1))


async def test_an_actor_in_whose_gpus_place_another_board_stands_has_lost_it():
    async with a_pod(2, 3) as stand:
        await stand.running("a1", **claim(1))
        async with _watched(stand):
            stand.nvml.answer(gpu(2, uuid="GPU-other"), gpu(3))
            await stand.until(State.FAILED)
        problem = stand.life().actor.problem
        assert (problem.reason, problem.subject) == (Reason.GPU_LOST, "GPU-2")


async def test_a_resume_that_waits_for_nvml_while_the_worker_begins_to_drain_is_refused():
    async with a_pod(2) as stand:
        await stand.running("a1", **claim(1))
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        stand.nvml.say(SILENT)
        async with anyio.create_task_group() as group:
            group.start_soon(_refused_as_draining, stand)
            await anyio.wait_all_tasks_blocked()
            await stand.drain()
            stand.nvml.answer(gpu(2))
        assert stand.life().actor.state is State.SUSPENDED
        assert stand.worker.gpus.pool.tickets == ()


async def _refused_as_draining(stand):
    with pytest.raises(ProblemError) as caught:
        await operations.resume(stand.worker, "a1")
    assert caught.value.problem.reason is Reason.WORKER_DRAINING


class Lingering(Granting):
    """Has given its GPUs back for a while when it comes to its rest, as one that still prunes its snapshots."""

    def __init__(self, stage):
        super().__init__(stage)
        self.has_given_back, self.may_rest = anyio.Event(), anyio.Event()

    async def perform(self, command, actor):
        answer = await super().perform(command, actor)
        if isinstance(command, c.ReleaseSandbox | c.StopContainers):
            self.has_given_back.set()
            await self.may_rest.wait()
        return answer


@pytest.mark.parametrize("ending", [operations.suspend, operations.stop])
async def test_what_is_booked_for_an_actor_that_is_about_to_rest_is_there_when_it_goes_on(ending):
    async with a_pod(2, performer=Lingering) as stand:
        await stand.running("a1", **claim(1))
        performer = stand.performers["a1"]
        await ending(stand.worker, "a1")
        await performer.has_given_back.wait()
        await stand.submit("a1", 2, **claim(1))
        hold = performer.hold(c.DetectGpus)
        stand.prepare["a1"] = lambda successor: successor.holds.update({c.DetectGpus: hold})
        performer.may_rest.set()
        await hold.begun.wait()
        assert await stand.refused("a2", **claim(1)) == [Reason.INSUFFICIENT_GPUS]
        hold.let_go()
        await stand.until(State.RUNNING)


async def test_what_is_booked_for_a_request_that_is_not_followed_is_given_back_at_rest():
    async with a_pod(2, performer=Lingering) as stand:
        await stand.running("a1", **claim(1))
        performer = stand.performers["a1"]
        await operations.suspend(stand.worker, "a1")
        await performer.has_given_back.wait()
        await stand.submit("a1", 2, **claim(1))
        await stand.submit("a1", 3, spec__desiredState="Suspended", **claim(1))
        performer.may_rest.set()
        await stand.until(State.SUSPENDED)
        assert stand.worker.gpus.pool.tickets == ()


async def test_what_is_booked_for_a_successor_that_cannot_begin_is_given_back():
    async with a_pod(2, performer=Lingering) as stand:
        await stand.running("a1", **claim(1))
        performer = stand.performers["a1"]
        await operations.stop(stand.worker, "a1")
        await performer.has_given_back.wait()
        await stand.submit("a1", 2, **claim(1))
        assert stand.worker.gpus.pool.ticket("a1") is not None
        stand.worker.shutdown.ask()
        performer.may_rest.set()
        await stand.life().ended.wait()
        await anyio.wait_all_tasks_blocked()
        assert stand.life().actor.problem.reason is Reason.WORKER_DRAINING
        assert stand.worker.gpus.pool.tickets == ()


async def test_an_actor_that_was_found_at_rest_may_book_before_its_loop_has_begun():
    async with a_pod(2) as stand:
        assignment = admitted(document(**claim(1)))
        actor = attrs.evolve(first_memory(assignment, a_snapshot()), state=State.SUSPENDED)
        disk, append = anyio.Event(), stand.files.append_durably

        async def append_slowly(path, data):
            await disk.wait()
            await append(path, data)

        stand.files.append_durably = append_slowly
        await stand.worker.resume_life(
            stand.worker.life_on_disk(assignment, actor, seq=0, lines=0, since_s=0.0), Entrance.AT_REST
        )
        assert await stand.worker.gpus.book(assignment)
        disk.set()
        await anyio.wait_all_tasks_blocked()
        assert stand.worker.gpus.pool.ticket("a1") is not None


async def test_a_snapshot_that_inject_refuses_leaves_the_actor_suspended_with_that_reason():
    async with a_pod(2) as stand:
        await stand.running("a1", **claim(1))
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        stand.performers["a1"].answers |= {
            c.InjectEdits: e.RestoreRefused(problem=a_problem(Reason.SNAPSHOT_CORRUPT)),
            c.RollBack: e.RolledBack(origin=e.OriginVerdict.DAMAGED),
        }
        await operations.resume(stand.worker, "a1")
        await stand.until(State.SUSPENDED, State.FAILED)
        assert stand.life().actor.state is State.SUSPENDED
        assert stand.life().actor.problem.reason is Reason.SNAPSHOT_CORRUPT
        assert stand.worker.gpus.pool.tickets == ()


async def test_an_actor_is_admitted_while_nvml_fails_and_says_why_it_failed():
    async with a_pod(2) as stand:
        stand.nvml.fail()
        assert await stand.submit("a1", **claim(1)) == "Begun"
        await stand.until(State.FAILED)
        assert stand.life().actor.problem.reason is Reason.NVML_UNAVAILABLE
        stand.nvml.answer(gpu(2))
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)


async def test_case_041_an_xid_of_the_application_is_told_to_the_holder_alone_which_runs_on():
    async with a_pod(2, 3) as stand:
        await stand.running("a1", **claim(1))
        await stand.running("a2", **claim(1))
        async with _watched(stand):
            for xid in (94, 94, 13, 999, 79):  # 79 is told as the loss that it is
                stand.nvml.xids.add(XidFact(gpu="GPU-2", xid=xid), 0.0)
            stand.nvml.xids.add(XidFact(gpu="GPU-unknown", xid=13), 0.0)
            with anyio.fail_after(30):
                while len(told := stand.status("a1")["notices"]) < 3:
                    await anyio.lowlevel.checkpoint()
        assert [(each["reason"], each["subject"], each["count"]) for each in told] == [
            ("GpuErrorReported", "/dev/nvidia2 XID 94", 2),
            ("GpuErrorReported", "/dev/nvidia2 XID 13", 1),
            ("GpuErrorReported", "/dev/nvidia2 XID 999", 1),
        ]
        assert stand.status("a2")["notices"] == []
        assert stand.life("a1").actor.state is stand.life("a2").actor.state is State.RUNNING
        assert stand.worker.gpus.as_json()[0]["xids"][0] == {"xid": 94, "count": 2, "policy": "Tell"}


async def test_case_041_a_gpu_that_is_withheld_stays_with_its_holder_and_goes_to_nobody_else():
    async with a_pod(2, 3) as stand:
        await stand.running("a1", **claim(1))
        stand.nvml.say(NvmlAnswers(driver=DRIVER, inventory=inventory(2, 3).withholding({"GPU-2": "XID 74"})))
        states = [(each["state"], each["lost"], each["withheld"]) for each in stand.worker.gpus.as_json()]
        assert states == [("Held", None, "XID 74"), ("Free", None, None)]
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        assert [each["state"] for each in stand.worker.gpus.as_json()] == ["Lost", "Free"]
        with pytest.raises(ProblemError) as caught:
            await stand.submit("a2", **claim(2))
        problem = caught.value.problem
        assert problem.reason is Reason.INSUFFICIENT_GPUS
        assert "1 of 2 can be had: /dev/nvidia2 is withheld (XID 74)" in problem.message
        await stand.running("a3", **claim(1))
        assert stand.status("a3")["containers"][0]["gpus"] == ["GPU-3"]
        stand.nvml.answer(gpu(2), gpu(3))
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)


@asynccontextmanager
async def _watched(stand):
    stand.worker._scope.start_soon(stand.worker.gpus.run, stand.worker.lose_gpu, stand.worker.tell_trouble)
    yield
