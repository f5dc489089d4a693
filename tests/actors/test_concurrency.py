"""Jobs side by side: the first failure is the reason, the others are cancelled and not heard."""

import errno
from functools import partial

import anyio
import pytest

from actors.concurrency import together
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

pytestmark = pytest.mark.anyio


def failure(subject):
    return ProblemError(Problem(step=Step.CREATE, reason=Reason.RUNTIME_FAILED, subject=subject, message="no"))


async def test_all_jobs_run_side_by_side():
    meeting = anyio.Event()
    seen = []

    async def waits():
        await meeting.wait()
        seen.append("waits")

    async def comes():
        seen.append("comes")
        meeting.set()

    await together(waits, comes)
    assert seen == ["comes", "waits"]


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_each_job_is_done_once_however_few_there_are(count):
    done = []

    async def job(number):
        done.append(number)

    await together(*(partial(job, number) for number in range(count)))
    assert sorted(done) == list(range(count))


async def test_the_first_failure_is_raised_and_what_its_cancelled_sibling_says_is_not():
    sibling_waits = anyio.Event()

    async def fails_when_cancelled():
        try:
            sibling_waits.set()
            await anyio.sleep_forever()
        finally:
            raise failure("consequence")

    async def fails_first():
        await sibling_waits.wait()
        raise failure("cause")

    with pytest.raises(ProblemError) as raised:
        await together(fails_when_cancelled, fails_first)
    assert raised.value.problem.subject == "cause"


async def test_an_error_of_the_kernel_comes_out_as_it_was_raised():
    async def breaks():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as raised:
        await together(breaks, anyio.sleep_forever)
    assert raised.value.errno == errno.ENOSPC


async def test_what_is_no_problem_is_not_hidden():
    async def breaks():
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised:
        await together(breaks, anyio.sleep_forever)
    assert raised.value.subgroup(ZeroDivisionError) is not None


async def test_cancelling_the_caller_cancels_the_jobs():
    ended = []

    async def job():
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(together, job, job)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert ended == [1, 1]
