"""Commands and waiting."""

import anyio
import pytest

from statemachine import commands as c
from statemachine.actor import Actor
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.memory import first_memory
from tests.fakes.performer import failing
from tests.supervisor.lives import an_assignment, settled
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio


async def reason_of(awaitable):
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return caught.value.problem.reason


@pytest.mark.parametrize("operation", [operations.suspend, operations.resume, operations.stop])
async def test_an_actor_that_nobody_knows_is_not_found(operation):
    async with a_stand() as stand:
        assert await reason_of(operation(stand.worker, "nobody")) is Reason.ACTOR_NOT_FOUND


async def test_a_terminated_actor_is_stopped_already_and_cannot_be_resumed_or_suspended():
    async with a_stand() as stand:
        await stand.terminated()
        assert await operations.stop(stand.worker, "a1") is State.TERMINATED
        assert await reason_of(operations.resume(stand.worker, "a1")) is Reason.ACTOR_TERMINATED
        assert await reason_of(operations.suspend(stand.worker, "a1")) is Reason.ACTOR_TERMINATED


async def test_a_suspended_actor_is_resumed_from_its_last_good_snapshot():
    async with a_stand() as stand:
        life = await stand.running()
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        snapshot = life.actor.last_good
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)
        assert life.actor.origin == snapshot


async def wait(stand, state, uid="a1", timeout_s=20.0):
    return await operations.wait(stand.worker, uid, state, timeout_s=timeout_s)


async def test_a_state_that_is_there_already_is_not_waited_for():
    async with a_stand() as stand:
        life = await stand.running()
        assert await wait(stand, State.RUNNING, timeout_s=0) is life


async def test_an_actor_that_is_not_here_yet_may_still_come():
    async with a_stand() as stand, anyio.create_task_group() as group:
        found = []

        async def waiter():
            found.append(await wait(stand, State.RUNNING))

        group.start_soon(waiter)
        await settled()
        await stand.submit("other")
        await stand.submit()
        await stand.until(State.RUNNING)
        await settled()
        assert found == [stand.life()]


async def test_an_actor_that_does_not_come_is_not_found_in_the_end():
    async with a_stand() as stand:
        assert await reason_of(wait(stand, State.RUNNING, timeout_s=0.01)) is Reason.ACTOR_NOT_FOUND


async def test_a_state_that_does_not_come_in_time_is_a_timeout():
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.hold(c.CreateSandbox)
        await stand.submit()
        assert await reason_of(wait(stand, State.RUNNING, timeout_s=0.02)) is Reason.WAIT_TIMEOUT


async def test_the_actors_own_error_ends_the_wait_as_soon_as_the_state_cannot_come():
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await stand.submit()
        assert await reason_of(wait(stand, State.RUNNING)) is Reason.RUNTIME_FAILED


async def test_a_suspend_that_is_refused_ends_the_wait_for_it_with_the_reason():
    async with a_stand() as stand:
        await stand.running()
        stand.performers["a1"].answers[c.SaveSnapshot] = failing(Reason.INSUFFICIENT_DISK)
        await operations.suspend(stand.worker, "a1")
        assert await reason_of(wait(stand, State.SUSPENDED)) is Reason.INSUFFICIENT_DISK
        await stand.until(State.RUNNING)


@pytest.mark.parametrize("wanted", [State.SUSPENDED, State.CREATING])
async def test_a_state_that_cannot_come_by_itself_is_not_waited_for(wanted):
    async with a_stand() as stand:
        await stand.running()
        assert await reason_of(wait(stand, wanted)) is Reason.STATE_UNREACHABLE


async def hint_of(awaitable):
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return caught.value.problem.hint


async def test_a_state_that_cannot_come_says_how_to_ask_for_it():
    async with a_stand() as stand:
        await stand.running()
        assert "`greenroom suspend a1`" in await hint_of(wait(stand, State.SUSPENDED))
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        assert await hint_of(wait(stand, State.RUNNING)) == "`greenroom resume a1` asks for it."
        assert "`greenroom stop a1`" in await hint_of(wait(stand, State.TERMINATED))
        assert not operations.starts_anew(stand.worker, "a1")
        await operations.stop(stand.worker, "a1")
        await stand.until(State.TERMINATED)
        assert "higher generation" in await hint_of(wait(stand, State.RUNNING))


async def test_a_failed_actor_without_a_snapshot_starts_anew_when_it_is_resumed():
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await stand.submit()
        await stand.until(State.FAILED)
        assert operations.starts_anew(stand.worker, "a1")
        with pytest.raises(ProblemError):
            operations.starts_anew(stand.worker, "nobody")


async def test_the_end_of_an_actor_that_runs_may_come_by_itself():
    async with a_stand() as stand:
        await stand.running()
        assert await reason_of(wait(stand, State.TERMINATED, timeout_s=0.01)) is Reason.WAIT_TIMEOUT


async def test_terminated_is_final_for_a_wait_too():
    async with a_stand() as stand:
        await stand.terminated()
        assert (await wait(stand, State.TERMINATED)).actor.state is State.TERMINATED
        assert await reason_of(wait(stand, State.RUNNING)) is Reason.STATE_UNREACHABLE


async def test_who_waits_for_running_waits_through_an_end_that_a_new_generation_follows():
    async with a_stand() as stand, anyio.create_task_group() as group:
        found = []

        async def waiter():
            found.append((await wait(stand, State.RUNNING)).assignment.generation)

        await stand.running()
        hold = stand.performers["a1"].hold(c.StopContainers)
        await stand.submit(generation=2, spec__desiredState="Terminated")
        await hold.begun.wait()
        await stand.submit(generation=3)
        group.start_soon(waiter)
        await settled()
        hold.let_go()
        await stand.until(State.RUNNING)
        await settled()
        assert found == [3]


async def test_who_waits_for_the_end_of_an_actor_that_never_was_here_learns_of_the_document_that_says_so():
    found = []

    async def wait_for_it(stand):
        found.append((await wait(stand, State.TERMINATED)).actor.state)

    async with a_stand() as stand, anyio.create_task_group() as group:
        group.start_soon(wait_for_it, stand)
        await settled()
        await stand.submit(spec__desiredState="Terminated")
        await settled()
        assert found == [State.TERMINATED]
        group.cancel_scope.cancel()


async def test_a_life_whose_loop_is_over_is_not_waited_for():
    async with a_stand() as stand:
        assignment = an_assignment()
        life = stand.worker._lives["a1"] = stand.worker._life(assignment, first_memory(assignment, None))
        life.end_unstarted()
        assert await reason_of(wait(stand, State.TERMINATED)) is Reason.STATE_UNREACHABLE


async def test_a_deadline_is_a_reason_that_ends_a_wait(monkeypatch):
    monkeypatch.setattr(Actor, "deadline_s", property(lambda actor: 0.01 if actor.state is State.CREATING else None))
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.hold(c.CreateSandbox)
        await stand.submit()
        assert await reason_of(wait(stand, State.RUNNING)) is Reason.STEP_DEADLINE_EXCEEDED
