"""Alive and ready: what each answers at every stage of a worker's life, and why."""

import anyio
import pytest

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from supervisor.directory_intake import DIRECTORY
from supervisor.health import CONTROL, INTAKE, Health
from supervisor.shutdown import Shutdown
from tests.supervisor.lives import BOUND_S
from tests.supervisor.stands import DRAIN_S, a_stand

pytestmark = pytest.mark.anyio


def reasons(problems):
    return [problem.reason for problem in problems]


async def test_before_there_is_a_worker_it_is_alive_and_not_ready():
    health = Health(Shutdown(DRAIN_S))
    assert health.ailments() == ()
    assert reasons(health.obstacles()) == [Reason.WORKER_STARTING]


async def test_it_is_ready_only_while_it_takes_work():
    async with a_stand() as stand:
        health = Health(stand.worker.shutdown)
        health.worker = stand.worker
        assert reasons(health.obstacles()) == [Reason.WORKER_STARTING]
        with health.taking_work():
            assert health.obstacles() == ()
        # It ends, and nobody asked for that.
        assert reasons(health.obstacles()) == [Reason.WORKER_DRAINING]
        await health.run(CONTROL, anyio.lowlevel.checkpoint)
        assert [problem.subject for problem in health.obstacles()] == [CONTROL]


async def test_the_signal_alone_makes_it_not_ready_before_anything_else_happens():
    async with a_stand() as stand:
        health = Health(stand.worker.shutdown)
        health.worker = stand.worker
        life = await stand.running()
        with health.taking_work():
            state = life.actor.state
            stand.worker.shutdown.ask()  # and nothing has had a turn of the loop since
            assert reasons(health.obstacles()) == [Reason.WORKER_DRAINING]
            assert life.actor.state is state
            assert health.ailments() == ()


async def test_what_keeps_every_start_from_succeeding_makes_it_not_ready_until_it_is_over():
    async with a_stand() as stand:
        health = Health(stand.worker.shutdown)
        health.worker = stand.worker
        unreadable = Problem(step=Step.ADMISSION, reason=Reason.INTAKE_UNREADABLE, subject="/x", message="gone")
        with health.taking_work():
            stand.worker.refused[DIRECTORY] = (unreadable,)
            stand.worker.refused["bad.yaml"] = (unreadable,)  # one document is no reason
            stand.nvml.fail()
            assert reasons(health.obstacles()) == [Reason.INTAKE_UNREADABLE, Reason.NVML_UNAVAILABLE]
            assert health.ailments() == ()
            del stand.worker.refused[DIRECTORY]
            stand.nvml.answer()
            assert health.obstacles() == ()


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
async def test_a_part_that_ends_by_itself_is_named_by_both(error):
    async with a_stand() as stand:
        health = Health(stand.worker.shutdown)
        health.worker = stand.worker

        async def ends():
            if error is not None:
                raise error

        with health.taking_work():
            await health.run(INTAKE, anyio.lowlevel.checkpoint)
            with pytest.raises(error) if error else anyio.CancelScope():
                await health.run(CONTROL, ends)
            assert [problem.subject for problem in health.ailments()] == [INTAKE, CONTROL]
            assert health.obstacles() == health.ailments()


async def test_a_part_that_is_cancelled_is_no_trouble_and_one_that_begins_anew_is_none_any_more():
    health = Health(Shutdown(DRAIN_S))
    async with anyio.create_task_group() as group:
        group.start_soon(health.run, INTAKE, anyio.sleep_forever)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert health.ailments() == ()
    await health.run(INTAKE, anyio.lowlevel.checkpoint)
    assert len(health.ailments()) == 1
    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(health.run, INTAKE, anyio.sleep_forever)
            await anyio.wait_all_tasks_blocked()
            assert health.ailments() == ()
            group.cancel_scope.cancel()
